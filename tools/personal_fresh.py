"""The lists of `personal.py` a fourth time, written when those of `personal_unseen.py` had been read.

Nothing is chosen on them: what was not found of them is counted, and not looked at.
"""

IN_OTHER_WORDS = """
My mum passed away when I was twelve. | How old was I when I lost my mother?
I'm the youngest of five. | How many siblings do I have?
We've been together since high school, Maya and me. | Who is my girlfriend?
My ex moved to Oslo. | Where does my former husband live?
I've got a little girl, Tessa. | What is my child called?
My parents run a vineyard near Siena. | What do my mum and dad do?
My twin is a pilot. | What is my sister's profession?
We named the baby Oscar. | What is my son's name?
My in-laws are from Seoul. | Where do my wife's parents come from?
Gran turned ninety in spring. | How old is my grandmother?
I'm an only child. | Do I have any siblings?
I proposed to Lea on the beach. | Who is my fiancée?
My wife's expecting in October. | When is my baby due?
I became a widow three years ago. | What is my marital status?
Call me Ziggy. | What is my nickname?
I got my first name from my grandfather Emil. | Who was I named after?
I go by Dr Hansen at the clinic. | What is my title?
We rent a cottage outside Bergen. | Where is my home?
I've just bought a studio in Lisbon. | Which city do I live in?
There are four of us sharing the place. | How many flatmates do I have?
I moved house in February. | When did I change my address?
We heat with wood. | What kind of heating do I have?
Number 14, Rose Avenue, that's us. | What is my address?
I pay 700 a month for the room. | What is my rent?
I've lived here for nine years. | Since when have I been in my flat?
The people next door are called Novak. | Who are my neighbours?
I hail from Wales. | Where am I from?
I left Iran when I was six. | What is my country of origin?
I hold a Canadian passport. | What is my citizenship?
I cut hair for a living. | What is my job?
I'm with the fire brigade. | Who is my employer?
I design websites. | What do I do for work?
I'm between jobs at the moment. | Am I employed?
I look after forty cows. | What is my occupation?
I do the accounts for a brewery. | Which company do I work for?
They made me head of sales. | What is my position?
I've been a postman since 1999. | How long have I had my job?
I put in 50 hours a week. | How much do I work?
I answer to Mrs Keller. | Who is my boss?
I set up a bakery with my cousin. | What business do I own?
I hand in my notice on Monday. | When am I quitting?
They gave me the sack in June. | When did I lose my job?
I clean teeth all day. | What is my profession?
I took home 2,800 last month. | How much do I earn?
I'm in the third year of medicine. | What do I study?
I went to the Sorbonne. | What is my university?
I dropped out of school at sixteen. | When did I finish my education?
I'm doing a PhD on coral reefs. | What is my thesis about?
I flunked the theory part. | How did I do in my driving test?
I take evening classes in Greek. | Which language am I learning?
I grew up with Tagalog at home. | What is my mother tongue?
I can get by in Russian. | Which foreign languages do I speak?
I've had diabetes since childhood. | Which illness do I have?
Penicillin brings me out in spots. | What am I allergic to?
Dairy upsets my stomach. | What can't I eat, do you remember?
I'm on beta blockers. | What medication do I take?
I've had my appendix out. | Which operation did I have?
I sprained my wrist playing squash. | What is my injury?
I wear hearing aids. | What is my disability?
I'm blind in one eye. | What is my eyesight like?
My back is killing me. | Where do I have pain?
I gave up smoking in March. | When did I quit cigarettes?
I'm AB negative. | What is my blood type?
I faint when I see needles. | What is my biggest fear?
I go in for a knee replacement on the 12th. | When is my surgery?
I have my teeth cleaned on Thursday. | When is my dentist appointment?
I only get five hours a night. | How much do I sleep?
I'm up before sunrise. | When do I get out of bed?
I'm six foot two. | How tall am I?
I take a medium. | What is my T-shirt size?
My hair is jet black. | What do I look like?
I've a tattoo of an anchor. | What is on my arm?
I'm left-handed. | Which hand do I write with?
I never touch alcohol. | What do I drink at parties?
I put three sugars in my tea. | How do I take it sweetened, my hot drink?
I'd kill for a good lasagne. | What is my favourite dish?
Nothing beats mint chocolate chip. | What is my favourite ice cream?
I can't get enough of sushi. | Which food do I love?
Olives make me gag. | Which food do I hate?
I keep kosher. | What are my dietary rules?
I had pancakes this morning. | What did I eat for breakfast?
I live on crisps. | What is my favourite snack?
I'm more of a tea person. | Do I prefer coffee, did I say?
My evenings belong to my telescope. | What is my hobby?
I knit socks for the whole family. | What do I do in my spare time?
I've a black belt in karate. | Which martial art do I practise?
I swim every morning. | What sport do I do?
I row for the college. | Which team am I on?
I scored twice on Saturday. | How many goals did I shoot?
I cheer for the Red Sox. | What is my favourite baseball team?
I've run three marathons. | How many races have I done?
I strum the guitar a bit. | What instrument do I play?
I'm in a choir, second alto. | What is my voice?
Queen is the greatest band of all time. | What is my favourite group?
I can watch Amelie over and over. | What is my favourite film?
I'm hooked on Succession. | Which TV series am I watching?
I devour crime novels. | What kind of books do I read?
I'm halfway through Middlemarch. | What am I reading?
I'm all for autumn leaves. | What is my favourite season?
Green has always been my thing. | What is my favourite colour?
I spend hours on Minecraft. | Which computer game do I play?
I go to mass every Sunday. | What is my religion?
I pray five times a day. | What is my faith?
I'm a Scorpio. | What is my horoscope sign?
I've always voted Labour. | Which political party do I support?
I've got two tabbies. | What pets do I have?
Our collie chases the postman. | What breed is my dog?
The hens laid nine eggs today. | Which animals do I keep?
We put Rex to sleep last week. | What happened to my dog?
I walk a beagle for my neighbour. | Whose pet do I look after?
I drive a beat-up Fiat. | What car do I have?
I get around on a Vespa. | What is my vehicle?
I cycle to the office. | How do I commute?
I traded the van for a Tesla. | What is my new car?
I've flown Emirates eleven times. | Which airline do I use?
I've been to Japan twice. | Which countries have I visited?
We honeymooned in Bali. | Where did I go after my wedding?
I booked a cabin in Norway for July. | Where am I spending my summer holiday?
We land in Quito on the 9th. | When does my plane arrive?
I set off for Athens tomorrow. | What is my next trip?
I'm put up at the Ritz. | What is my hotel?
I backpacked through Peru at twenty. | What did I do when I was young?
The picnic has been moved to the 4th. | When is my outing?
Carla and I meet for lunch on Tuesday. | Who do I have an appointment with?
I'm throwing a party on Friday. | When is my celebration?
The plumber comes at nine. | When is my tap being repaired?
I owe my sister 300 dollars. | How much debt do I have?
I've put aside ten thousand. | How large are my savings?
I'm saving up for a canoe. | What do I want to buy?
I won 40 euros at bingo. | What was my prize?
I bank with Lloyds. | Where is my account?
The mortgage runs until 2040. | When is my house paid off?
Grandma left me her piano. | What did I inherit?
I got earrings from Paul for Christmas. | What was my present?
I picked up a Leica at a flea market. | Which camera do I have?
I swapped my iPhone for a Pixel. | What phone do I own?
I type on a ThinkPad. | Which laptop do I use?
I lost my gloves on the tram. | Where did I leave my mittens?
The charger is in the glove box. | Where is my power cable?
I stuck the passport behind the mirror. | Where did I hide my travel document?
I left the car by the church. | Where am I parked?
The spare set is with Mrs Young. | Who has my keys?
You need 7741 to open the gate. | What is my door code?
I log in with starfish88. | What is my password?
You can text me on 07700 900. | What is my phone number?
I'm ziggy@mail.org. | What is my email?
I collect vinyl. | What do I gather?
I've bred orchids for years. | Which flowers do I grow?
There's rhubarb and kale in my beds. | What vegetables are in my garden?
The shed is painted yellow. | What colour is my garden house?
I came off my bike in May. | When was my accident?
I was mugged in Naples. | What happened to me on holiday?
I nearly drowned as a boy. | What is my worst childhood memory?
I'd love to see the northern lights. | What is my dream?
I want to be a vet one day. | What is my career goal?
I'm giving a talk on bees. | What is my presentation about?
I've joined the Rotary. | Which club am I a member of?
I help out at the food bank. | Where do I volunteer?
I met my husband on a train. | How did I get to know my spouse?
Ida has been there for me since nursery. | Who is my best friend?
My tutor is Miss Bell. | Who gives me lessons?
I see Dr Osei about my knees. | Who is my doctor?
"""
"""What is told, and the question for it; with hardly a content word in common."""

NEVER_TOLD = """
Which {pet} do I like best?
What did I call my {pet}?
When did my {pet} die?
What is my {pet} afraid of?
What is my {kin}'s first name?
How old is my {kin} now?
Where was my {kin} born?
What is my {kin}'s phone number?
What does my {kin} earn?
Which car does my {kin} have?
What did I buy for my {kin}?
When did I meet my {kin}?
What does my {kin} do?
How much did my {thing} cost?
Who repaired my {thing}?
Where do I store my {thing}?
Which colour is my {thing}?
How long have I had my {thing}?
What is inside my {thing}?
What's my favourite {taste}?
Which {taste} do I dislike?
Who is my favourite {artist}?
What is my {number}?
Can you remind me of my {number}?
What was that {number} of mine?
When is my {event}?
Where will my {event} be?
Who is coming to my {event}?
How long does my {event} last?
What is my blood type?
What is my job?
What is my address?
What size are my feet?
What is my mother tongue?
Which illness do I have?
What do I eat for breakfast?
What is my dream?
Where do I volunteer?
What is my boss called?
Which university did I go to?
What time do I get up?
How much do I weigh?
What is my hobby?
Which team do I support?
Where did I go on holiday?
What was my present?
How many pets do I have?
Where did I leave my gloves?
"""

WORDS = {
    "kin": "stepbrother sister-in-law great-uncle godfather dentist gardener babysitter butcher apprentice",
    "pet": "alpaca hedgehog dachshund cockatiel newt pug calf stick_insect",
    "thing": "accordion fridge hammock stapler easel unicycle binoculars cufflink vase"
    " rowing_boat dishwasher",
    "number": "social_security_number locker_code IBAN hotel_room_number voucher_code dress_size hat_size"
    " policy_number voicemail_PIN fax_number",
    "taste": "sandwich dessert mountain candle river gemstone card_game circus cartoon spice",
    "artist": "playwright violinist dancer photographer tennis_player",
    "event": "blood_test audition funeral parade school_reunion yoga_class sailing_trip inspection",
}

LIKE = """
My brother is a vet. | What is my brother called?
My sister Ida lives in Ghent. | How old is my sister?
My dog ate a sock. | What is my dog called?
Our neighbour has two cats. | How many cats do I have?
I rode a horse once. | What is my horse called?
My boss drives a Saab. | What car do I drive?
My uncle works as a baker. | What is my aunt's job?
My daughter plays the harp. | What instrument do I play?
My husband speaks Greek. | Which languages do I speak?
I paid 20 euros for the hat. | How much were my gloves?
My dentist is in Mill Lane. | Where is my doctor?
My exam is on Monday. | When is my wedding?
I flew to Malta with Paul. | Who did I fly to Cyprus with?
My scooter is lime green. | What colour is my helmet?
My friend is allergic to wool. | What am I allergic to?
My wife's favourite dish is paella. | What is my favourite dish?
I had lunch at noon. | What did I have for lunch?
My cat is three. | How old is my son?
My flat number is 12. | What is my house number?
I lost my umbrella. | Where did I lose my umbrella?
I have an appointment with the barber. | When is my appointment with the barber?
My train was late. | When does my train leave?
My neighbour was born in Graz. | Where was I born?
My grandfather collected coins. | What do I collect?
My locker is on the left. | What is my locker number?
My mother hates spinach. | Which vegetable do I hate?
"""
"""Told is something like what is asked for, and not that."""
