"""Questions in other words, and questions for what was never told, written by
somebody who had not seen the program (2026-11-25). Nothing is chosen on them.
"""

IN_OTHER_WORDS = """\
I teach seven-year-olds at Oakfield Primary. | What do I do for a living?
My cousin Delphine had twins this week! | Who in my family just gave birth?
We live in a little yellow cottage by the river. | What colour is my house?
Peanuts make my throat swell up. | What am I allergic to?
Our beagle is called Biscuit. | What's my dog's name?
I was born on the 3rd of March. | When is my birthday?
I really can't stand coriander. | Which herb do I hate?
My husband drives a school bus. | What kind of work does my other half do?
On Friday I'm flying to Lisbon. | Which city am I travelling to?
The doctor put me on metformin for my sugar. | What pills do I take?
I left the car on level 4 next to the lifts. | Remind me where I parked.
I fell off a ladder in 2019 and broke my wrist. | How did I hurt my arm?
We got married on a beach in Crete. | Where was my wedding?
Finally down to 71 kilos! | How much do I weigh?
I'm only five foot two, so top shelves are a problem. | How tall am I?
My feet are a 39. | What shoe size do I wear?
Mum grew up in Galway. | Where is my mother from?
When I was little we kept pigs. | What farm animals were there in my childhood?
At school I answer to a dragon named Henrietta. | Who is my boss?
Lessons start at twenty to nine. | What time do I have to be at work in the morning?
We're saving up for a camper van. | What am I putting money aside for?
Nan left me her emerald ring. | What did I inherit from my grandmother?
My dissertation was about bees. | What did I write my thesis on?
I did chemistry at Leeds. | Which subject did I take at university?
I've been having cello lessons since Christmas. | Which instrument am I learning?
I swim forty lengths every Thursday. | What do I do for exercise?
The rent just went up to 950 a month. | How much do I pay the landlord?
Ottilie is coming to stay with us over Easter. | Who will be visiting me this spring?
There's a spare key under the fern pot. | How do I get in if I'm locked out?
The dentist can see me on the 14th. | When do I get my teeth checked?
I gave up smoking in January. | When did I have my last cigarette?
Spiders scare me half to death. | What is my phobia?
Casablanca is the best film ever made, if you ask me. | What's my favourite movie?
I can't begin my day without a pot of jasmine tea. | What do I drink at breakfast?
I've got an old green Volvo. | Which car do I drive?
My son can't get enough of dinosaurs. | What is my little boy crazy about?
Our daughter wants to be a vet when she's big. | What career is my girl dreaming of?
I have three brothers and they all snore. | How many siblings do I have?
I forgot my umbrella on the tram yesterday. | What did I lose on public transport?
We broke down on the M6 last night. | Which road did I get stuck on?
I've been a vegetarian since 2016. | Do I eat meat?
I used to be a hairdresser before all this. | What was my previous job?
I'm trying to pick up a bit of Italian on my phone. | Which language am I studying?
Parents' evening is on the 9th. | What date am I meeting the mums and dads of my class?
The wifi code at home is tulip88. | Can you tell me my internet password?
Lights out at half past nine for me. | When do I normally go to bed?
My father passed away in 2011. | In what year did my dad die?
My eldest brother Casper lives in Toronto. | Who do I have over in Canada?
We have five hens at the bottom of the garden. | What birds do I keep?
A retired sailor bought my old piano. | Who did I sell my instrument to?
I wear contact lenses because I'm blind as a mole. | Do I need glasses?
My blood group is O negative. | If I need a transfusion, what type am I?
They're doing my knee operation on the 5th of October. | When's my surgery?
I've had migraines since I was a teenager. | Why do I get such bad headaches?
Mrs Abernathy is my new GP. | Who's my doctor?
The neighbour's drums are robbing me of my sleep. | What keeps me awake at night?
My husband is called Leopold. | What's my spouse's name?
We celebrated our tenth anniversary last week. | How long have I been married?
My mother-in-law makes the most terrible gravy. | What can't my husband's mum cook?
I found a kitten behind the bins and we're keeping her. | Where did my cat come from?
We've decided the kitten will be Pickles. | What did I name the cat?
I have a tattoo of a swallow on my shoulder. | What's inked on my body?
My hair is red, like my uncle's. | Am I a blonde or a brunette?
I do everything with my left. | Which hand do I write with?
My phone screen cracked when I sat on it. | Which gadget did I damage?
I've got a second-hand ThinkPad. | What computer do I use?
The sofa came from a flea market in Ghent. | Where did I get my couch?
The fridge is under guarantee until 2027. | When does my warranty run out?
We get our electricity from GreenSpark. | Who's my power supplier?
I bank with Northstead Mutual. | Where do I have my account?
I still owe Bettina forty pounds. | Who do I need to pay back?
Mr Okafor across the street has my drill. | Which neighbour borrowed something from me?
I subscribe to a magazine about trains. | What do I get in the post to read every month?
I'm halfway through Middlemarch. | What book am I reading at the moment?
Our reading circle meets on the first Wednesday. | When is my book club?
I cried all through that Adele concert. | Which singer have I seen live?
When I'm nervous I knit socks. | What do I do to calm myself down?
I only ever paint boats. | What do my pictures show?
I'm growing pumpkins this year. | What did I plant in the garden?
Slugs got all my lettuce. | What happened to my salad?
Leopold and I are off to the Dolomites in August. | Where am I going for my summer holidays?
As a student I spent a year in Kyoto. | Have I ever lived abroad?
I missed my train and had to wait two hours in Crewe. | At which station was I stranded?
My passport runs out in November. | When does my travel document expire?
I just turned forty-six. | How old am I?
I've been sober for six years. | How long have I been off the drink?
I'm a Quaker. | What's my religion?
I've voted for the Greens since 1998. | Which party do I support?
I've had a season ticket for Aston Villa since I was ten. | What's my football team?
I help out at a food bank on Saturdays. | What charity work do I do at the weekend?
I'm an alto in the town choir. | Which part do I sing?
My maiden name was Brzezicki. | What was I called before I got married?
I go by Tess, nobody says Theresa. | What do my friends call me?
Shrewsbury has been home for eleven years. | Which town do I live in?
You'll find us at 17 Heron Lane. | What's my address?
You can ring me on 0555 4471. | What's my telephone number?
The bin men come on Mondays. | When is my rubbish collected?
I play chess online as rookmother. | What's my username?
My suitcase lock is set to 719. | What code opens my luggage?
Lunch with Rosalind is at the Copper Kettle. | Where am I eating with my friend?
My brother Milo just got divorced. | Who in my family has split up with his wife?
My nephew joined the navy. | What's my brother's son doing now?
The people next door are Portuguese. | What nationality are my neighbours?
My grandparents met on a ferry. | How did Nan and Pop get to know each other?
Uncle Barnaby won a caravan in a raffle. | Which relative of mine got so lucky?
Mum showed me how to make plum dumplings. | Which dish did I learn from my mother?
I baked a lemon cake for the staff room. | What did I bring in for my colleagues?
Fergus is retiring in July. | Who's leaving my workplace this summer?
I share a classroom with Priyanka. | Which other teacher do I work alongside?
I take home 2,400 a month. | What's my salary?
I got a warning for being late. | Why was I in trouble at work?
I've applied to be deputy head. | Which position am I hoping to get?
The interview is on the 30th at ten. | When do they want to talk to me about the new job?
My commute is 25 minutes by bike. | How long does it take me to get to work?
There are 28 kids in my class. | How many pupils do I have?
I ran the Dublin marathon in under five hours. | What race have I finished?
My appendix came out when I was twelve. | What did surgeons remove from me?
The blood test says my iron is too low. | What deficiency do I have?
I'm seeing a therapist about my panic attacks. | Why do I go to counselling?
The nurse gave me a tetanus jab on Monday. | What did I get vaccinated against?
My new hearing aid is purple. | What colour is the thing in my ear?
I scalded my foot with pasta water. | What accident did I have in the kitchen?
My back only hurts when I sit. | When do I get pain in my spine?
I always put eleven on my lottery ticket. | What's my lucky number?
I secretly love the smell of petrol. | Which odd scent do I enjoy?
I'd have everything in turquoise if I could. | What's my favourite colour?
My eggs have to be runny. | How do I want my breakfast cooked?
At the gelateria I always go for pistachio. | Which ice cream flavour do I like most?
Jazz drives me up the wall. | What music do I dislike?
I've had Abba on repeat all week. | Which band am I listening to a lot?
I need the window, never the aisle. | Where do I like to sit on a plane?
Give me a good thunderstorm any day. | What weather do I love?
Autumn is when I'm happiest. | What's my favourite season?
Silver suits me, gold doesn't. | What metal should my jewellery be?
My wedding dress was my aunt's. | Whose gown did I get married in?
I'd like a telescope for Christmas. | What present am I wishing for?
I got Leopold a fishing rod when he turned fifty. | What gift did I buy for my husband?
Leopold blows out his candles on the 8th of December. | When was my husband born?
My boy is called Jasper. | What's my son's name?
Our girl is thirteen now, heaven help us. | How old is my daughter?
My daughter got a D in maths. | What does my girl struggle with at school?
Jasper comes out in hives from strawberries. | Which fruit can't my son eat?
Jasper has swimming lessons on Tuesdays. | Which day do I have to take my son to the pool?
Our babysitter is a student called Wilma. | Who watches the kids when I go out?
My daughter will be on exchange in Lyon. | Which French city is my girl off to?
My stepfather collects clocks. | What's the hobby of my mum's second husband?
Mum is in a care home called Willow Court. | Where does my mother live these days?
Mum had a stroke in April. | What happened to my mother's health this year?
I phone Mum every night at seven. | What time do I talk to my mother?
The first boy I ever kissed was Sven. | Who was my teenage love?
Leopold and I met at a bus stop in the rain. | How did I get to know my husband?
He proposed on the Eiffel Tower. | Where did I get engaged?
After the wedding we flew to Iceland. | Where did I spend my honeymoon?
The garden party is on the 12th of July. | When are my guests coming over?
Sixty people said yes to the barbecue! | How many guests do I have to feed?
I'm making tiramisu for Saturday. | Which dessert am I preparing?
The plumber is coming on Wednesday between 8 and 12. | When will my leak be fixed?
The boiler packed up again. | Why do I have no hot water?
We're having the bathroom done in September. | Which part of my house am I renovating?
We had solar panels put in last year. | How do I produce my own power?
Somebody stole my bike outside the library. | What did a thief take from me?
The police caught me doing 48 in a 30. | Why did I get a speeding fine?
I passed my driving test on the fourth go. | How many attempts did I need to get my licence?
The MOT is due in April. | When does my car need its inspection?
The kids' presents are in the attic where nobody looks. | Where did I hide the children's gifts?
My will is in the bottom drawer of the desk. | Where do I keep my important papers?
I took my grandfather's watch in for a new strap. | Which heirloom am I having repaired?
Nan's furniture went into a storage unit. | Where are my grandmother's old things?
I buy a fridge magnet everywhere I go. | Which souvenirs do I bring home from my trips?
I still have my teddy, Mr Buttons. | What's the name of my stuffed bear?
I was a pupil at St Hilda's until eighteen. | Which school did I go to?
Geography was my nightmare when I was a girl. | What was I bad at in school?
As a child I was going to be a pilot. | What did I want to become when I was small?
I once met Paul McCartney in a lift. | Which famous person did I bump into?
I was on a quiz show when I was twenty. | What was I on television for?
The local paper printed my poem. | What have I had published?
We spoke Irish at the kitchen table. | What's my mother tongue?
My great-grandfather was a Norwegian whaler. | What do I know about my ancestors?
I was a caesarean, and two weeks late. | How did I come into the world?
I nearly drowned at Brighton when I was six. | What dangerous thing happened to me as a kid?
From the 1st of January, no more sweets for me! | What was my New Year's resolution?
Before I die I have to see the northern lights. | What's at the top of my bucket list?
Once I'm retired we'll buy a vineyard in Tuscany. | What do I plan to do after I stop working?
No third baby for us, two is plenty. | Do I want more children?
I quit Facebook because of all the adverts. | Which social network did I leave?
My Instagram is nothing but doorways. | What do I take photos of?
I record a podcast on ghosts. | What's my show about?
I'm up at ten past five without an alarm. | When do I get out of bed?
I can't sleep without the radio on. | What do I need at night to nod off?
Yesterday I did 18,204 steps. | How far did I walk?
This place belongs to a Mr Pettigrew. | Who's my landlord?
The lease ends in February 2028. | How long can I stay in this house?
I'm not speaking to Cordelia any more. | Who have I fallen out with?
I'm going to be Harriet's bridesmaid. | Whose wedding am I part of?
My pen pal is Inmaculada from Seville. | Who do I write letters to?
We're at the Drunken Duck most evenings. | What's my local pub?
I order from the Golden Lotus when I can't be bothered. | Where do I get my takeaway?
Gustavo at Snips does my fringe. | Who cuts my hair?
I fit into a 14 again! | What dress size am I?
I can hold my breath for two minutes. | How long can I stay under water?
"""

NEVER_TOLD = """\
What's my middle name?
What's my daughter's name?
How old is my son?
What's my mother's first name?
What did my dad do for a living?
Where was my father born?
Which football team does my husband support?
How tall is my husband?
What's my youngest brother called?
What does Casper do for a living?
Where does Milo live?
What was Milo's wife called?
What did Delphine name her twins?
Which town does my cousin live in?
What was my dog's name before Biscuit?
How old is my beagle?
What does my dog like to eat?
Who's my vet?
What is my cat scared of?
When was my daughter's school trip?
Which hotel did I book in Lisbon?
Who am I flying to Lisbon with?
What time does my flight leave?
Which airline am I flying with?
What's my seat number on the train?
How many pounds do I want to lose?
What's my ring size?
What size bra do I wear?
What length trousers do I take?
Which bone did I break when I went skiing?
What is my daughter allergic to?
Which medicine does my mum take?
What was my last cholesterol result?
Who is my dentist?
How many fillings do I have?
Which hospital is doing my knee?
Who is my therapist?
What's my optician called?
What's my health insurance number?
When is my next eye test?
How many children did my grandmother have?
What was my grandmother's name?
Where is my grandfather buried?
Which of my brothers is a teacher?
Who was best man at my wedding?
What did my wedding cake look like?
What song did I dance to at my wedding?
How many guests did I have at my wedding?
What did my engagement ring cost?
Where does my stepfather come from?
What's the number plate of my car?
How many miles does my Volvo have on it?
Who do I insure my car with?
What was my first car?
What's the PIN for my bank card?
What's my email address?
What's the code for my front door?
What's my postcode?
Where do I keep the spare fuses?
Where did I put my birth certificate?
Where did I leave my sunglasses?
Where's my bicycle pump?
How much did I spend on the sofa?
Who built my kitchen?
What colour are my curtains?
What colour did I paint the bedroom?
How many bedrooms do I have?
How much did I pay for the solar panels?
When was my roof repaired?
What's my plumber's name?
How much is my electricity bill?
Which phone provider am I with?
What's my mobile contract costing me?
Which television series am I watching?
What's my favourite book?
Who is my favourite author?
What's my favourite flower?
What's my favourite animal?
Who's my favourite actor?
What's my favourite pizza topping?
What do I usually have for lunch?
Do I take milk in my coffee?
Which vegetable can't I stand?
What's my favourite cheese?
Which wine do I like?
What's my comfort food?
How spicy do I like my curry?
What crisps do I always buy?
Which perfume do I wear?
What's my favourite board game?
What's my favourite card game?
Which charity do I donate to?
Who am I named after?
Where do I go to church?
Which MP did I write to?
What was the last concert my husband took me to?
Which song did my choir sing at Christmas?
Where does my choir rehearse?
Who teaches me the cello?
How much are my cello lessons?
How long have I been teaching?
Which room is my classroom?
When is my lunch break?
What's the caretaker at my school called?
Which pupil gave me flowers?
Where is my class going on the school trip?
How many days of leave do I have left?
When do I get paid?
What's my pension going to be?
Which union am I in?
Who interviewed me for my first job?
What did I earn as a hairdresser?
What was my first job after school?
What grade did I get for my degree?
Who supervised my thesis?
Who was my favourite teacher?
Who did I sit next to in primary school?
What nickname do I have for my husband?
What was my favourite toy besides the bear?
What did my parents' farm grow?
What instrument does my daughter play?
What does my son want to be?
What's my son's best friend called?
When is Jasper's birthday?
Which teacher does Jasper have?
What's my daughter's favourite band?
Which school does my daughter go to?
How much pocket money do I give my kids?
What time do I want my daughter home?
How much do I pay the babysitter?
What's my mother-in-law's name?
Where do my in-laws live?
What's my sister-in-law's job?
When is my niece's confirmation?
How old is my nephew?
What does Uncle Barnaby do?
Who is my godmother?
Who am I godmother to?
Where does Ottilie live?
How did I get to know Ottilie?
What does Rosalind do for work?
Why did I fall out with Cordelia?
When is Harriet's wedding?
What colour is my bridesmaid dress?
Who is my oldest friend?
Which friend is expecting a baby?
Who did I promise to help move?
What did my friends give me for my fortieth?
Who lent me the tent?
Which book did I lend to Priyanka?
What are my Portuguese neighbours called?
What's the name of the boy who mows my lawn?
What's my postman's name?
What car do my neighbours have?
What are my hens called?
How many eggs do I get a week?
What tree did I plant when my son was born?
Which roses do I have in the garden?
When do I have to prune the apple tree?
Where did I buy my seeds?
How did I lose my first wallet?
How much was my speeding fine?
What colour was the bike that got stolen from me?
When did I pass my driving test?
Which bus do I take into town?
What country did I visit last summer?
Where did I go camping with the kids?
What was the worst trip I ever had?
Where am I spending New Year's Eve?
Who is cooking for me at Christmas?
What am I giving my mum for Mother's Day?
What did I get for my last birthday?
What did I give my daughter when she turned thirteen?
What are my plans for Sunday?
Who am I having coffee with tomorrow?
When is my next haircut?
When do I have to return my library books?
What did I want to buy at the chemist's?
What's on my shopping list?
What was I going to ask the doctor?
When is my appraisal?
When does my gym membership end?
Which gym do I go to?
What was my marathon number?
How fast did I run ten kilometres?
Which swimming pool do I use?
What did I dream last night?
What nightmare keeps coming back to me?
What makes me cry every time?
What's the worst thing anybody ever said to me?
What am I most proud of?
What do I regret most?
What's the bravest thing I've ever done?
Who was my first crush before Sven?
What's my most embarrassing moment?
What joke do I always tell?
Who taught me to drive?
What's my favourite poem?
Which prize did I win in the art show?
What colour are my eyes?
"""
