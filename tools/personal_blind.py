"""The lists of `personal.py` a fifth time, written before meanings were tried (LOG.md, 2026-11-24).

Nothing is chosen on them: they are counted, and what was not found of them is not looked at.
"""

IN_OTHER_WORDS = """
Dad kicked the bucket last spring. | When did my father die?
My better half is called Ingrid. | What is my wife's name?
We tied the knot in Verona. | Where did I get married?
I split up with Marco over Easter. | Who is my ex-boyfriend?
My nan is pushing a hundred. | How old is my grandmother?
There were seven of us children at home. | Do I come from a big family?
My sis just had a baby boy, little Hugo. | What is my nephew called?
My mother-in-law cooks like a goddess, her name is Rosa. | Who is my husband's mum?
I'm raising three teenagers on my own. | How many kids do I have?
Our firstborn starts kindergarten in autumn. | When does my eldest begin school?
I was adopted from Ethiopia as a toddler. | Which country was I born in?
The stork is coming in March. | When is my due date?
My old man drives a tram. | What is my dad's job?
I've been seeing someone called Felix. | Am I in a relationship, and who with?
My cousin and I shared a bedroom until we were ten. | Who did I sleep in one room with?
I fix broken pipes and leaking toilets. | What is my trade?
I stand in front of a class of eight-year-olds every day. | What is my occupation?
I drive a lorry across Europe. | How do I earn my living?
I fly 737s for Ryanair. | What is my job?
I'm on the night desk at the Grand Hotel. | Where am I employed?
I got promoted to team leader. | What is my role at the office?
They let me go just before Christmas. | When was I fired?
I bring home two grand a month. | What is my pay?
I work from the kitchen table these days. | Where is my office?
I clock off at half past four. | What time do I finish at work?
My gaffer is a lady named Petra. | What is my boss called?
I deliver parcels for DHL. | Which firm do I work for?
I'm doing an apprenticeship as a joiner. | What am I training to be?
I've been self-employed since 2015. | Since when have I run my own business?
I hand out meals to the homeless on Sundays. | What voluntary work do I do?
I sat my finals in June. | When were my exams?
I majored in anthropology. | What was my degree in?
I got thrown out of school for smoking. | Why was I expelled?
I never finished my thesis. | Do I have a doctorate?
I'm off to Bologna on an exchange term. | Where will I study abroad?
I scraped through algebra with a D. | What was my grade in maths?
My maths lessons are with Mr Okafor. | Who is my tutor?
I moved into a houseboat on the Amstel. | What kind of home do I have?
We're on the ninth storey. | Which floor do I live on?
Our house is a stone's throw from the station. | How far is it from my home to the train?
My digs are in Camden. | Which part of London do I live in?
The rent is 950 quid. | How much do I pay for my flat?
I bunk with two girls from Turin. | Who are my roommates?
We put the house on the market. | What am I selling?
The ceiling in my bathroom is dripping. | What is broken in my home?
Come over, it's 22 Larch Lane. | What is my address?
I was brought up on a sheep farm. | Where did I spend my childhood?
I'm a Kiwi. | Which nationality do I have?
I hold two passports, Swiss and Brazilian. | What are my citizenships?
I've put down roots in Marseille. | Where is my home these days?
At home we only spoke Welsh. | What is my native language?
My Japanese is fluent. | Which foreign language am I good at?
I can't touch nuts, my throat closes up. | What is my allergy?
I inject insulin before meals. | What disease do I have?
I'm short-sighted, minus five. | How bad are my eyes?
My knees are shot from football. | Which joints hurt me?
I've got a pacemaker. | What is wrong with my heart?
I did my back in lifting a fridge. | How did I get injured?
I came down with mumps as a kid. | Which childhood disease did I have?
The stitches come out on Wednesday. | When is my appointment at the hospital?
I'm having my wisdom teeth pulled on the 3rd. | When do I go to the dentist?
I take a little white tablet for my thyroid. | What is my medication for?
I haven't touched a drop since New Year. | When did I give up alcohol?
I shed twenty kilos last year. | How much weight did I lose?
I toss and turn all night. | How well do I sleep?
I tip the scales at 90 kilos. | What is my weight?
I'm five foot nothing. | What is my height?
I've got freckles and curly red hair. | What do I look like?
I squeeze into size 39 pumps. | What is my shoe size?
I've a scar from a dog bite on my chin. | What is that mark on my face?
Heights make me dizzy. | What am I scared of?
I jump on a chair when I see a mouse. | Which animal am I frightened of?
I'm a leap year baby. | When is my birthday?
I'll be forty next Sunday. | What age am I turning?
I've seen 68 summers. | How old am I?
Everyone knows me as Bibi. | What do people call me?
I was christened Bartholomew. | What is my real first name?
I'm a Capricorn. | What is my star sign?
I sing in the mosque choir. | Where do I make music?
I don't eat pork, for Allah's sake. | What is my religion?
We light candles every Friday evening for Shabbat. | Which faith do I belong to?
I'm a card-carrying Green. | Which political party am I a member of?
I don't believe in any god. | What do I think of religion?
I'm mad about gnocchi. | What is my favourite food?
I'd walk miles for a slice of cheesecake. | Which dessert do I love most?
Oysters turn my stomach. | Which seafood can't I stand?
I haven't eaten meat since I was fourteen. | What is my diet?
Two slices of toast and a boiled egg get me going. | What do I have for breakfast?
I start the day with an espresso. | What is my morning drink?
Mine's a pint of Guinness. | What is my favourite beer?
I nibble on liquorice all day. | What sweets do I like?
I make a mean goulash. | What is my best recipe?
Nothing tops Bach. | Who is my favourite composer?
I've got every record Bowie ever made. | Who is my favourite singer?
I bow the cello in an amateur orchestra. | What instrument do I play?
I blow the trumpet. | Which instrument did I learn?
I spend my weekends gliding. | What is my hobby?
I fold paper cranes to relax. | What do I do in my free time?
I climb at the wall on Thursdays. | Which sport do I do?
I've been fencing since I was nine. | What is my sport?
I'm Arsenal till I die. | Which football club do I support?
I bench a hundred. | How strong am I?
I did the marathon in 3:40. | What is my best time?
We got knocked out in the semi-final. | How did my team do in the cup?
I paint watercolours of seagulls. | What kind of art do I make?
I could watch Casablanca a hundred times. | Which film do I love best?
I'm glued to Peaky Blinders. | Which series am I watching?
My nose is always in a Le Carre. | Which author do I read most?
I'm on chapter nine of Dune. | Which book am I reading?
I hoard fridge magnets. | What do I collect?
I can't stand winter. | Which season do I hate?
Anything teal makes me happy. | What is my favourite colour?
Seven has always brought me luck. | What is my favourite number?
I spend every night on Fortnite. | Which video game do I play?
We've a moggy named Pickles. | What is my cat called?
I've got a chihuahua. | Which kind of dog do I have?
My budgie can say hello. | What bird do I have?
I keep a python in the spare room. | What is my unusual pet?
We had to have the old mare put down. | Which animal of mine died?
The vet is seeing Bruno on Monday. | When does my dog see the doctor?
I muck out stables before work. | What do I do in the mornings?
I whizz about on a moped. | What is my means of transport?
I take the number 12 tram. | How do I get to work?
I bought a second-hand Peugeot. | What car do I have?
I wrote off the Volvo on the M25. | Which vehicle did I crash?
I passed my test at the third go. | How often did I take my driving exam?
They took my licence off me for speeding. | Why can't I drive at the moment?
I left the car outside the bakery. | Where did I park?
We're flying to Crete on the 16th. | When does my holiday begin?
We're camping in Brittany this year. | Where am I going on vacation?
I've set foot on all seven continents. | How much of the world have I seen?
We're staying at the Bellevue. | What is my hotel called?
The ferry sails at ten to six. | When does my boat leave?
I missed the last train and slept on a bench. | What happened to me on my trip?
I'm in seat 14C. | Where do I sit on the plane?
I shelled out 80 euros for these boots. | What did my shoes cost?
I still owe the taxman four thousand. | How high are my debts?
I've tucked away a bit for a rainy day, about 5,000. | How much have I saved?
I scooped 500 on the lottery. | How much money did I win?
My nest egg is with Barclays. | Which bank do I use?
Auntie left me her pearls. | What did I inherit from my aunt?
Gran knitted me a jumper. | What was my gift from my grandmother?
Some thief nicked my bike outside the library. | What was stolen from me?
I dropped my phone down the loo. | What happened to my mobile?
I mislaid my specs at the swimming pool. | Where did I lose my glasses?
The spare key is under the flowerpot. | Where do I hide the key to my house?
I stashed the presents in the wardrobe. | Where did I put the gifts?
Punch in 9034 at the entrance. | What is my door code?
I get into my account with tulip77. | What is my password?
Drop me a line at kiki@web.net. | What is my email?
Give me a ring on 555 0134. | What is my telephone number?
I've just got myself a MacBook. | Which computer do I own?
I shoot with an old Canon. | What camera do I have?
I traded my Samsung in for a Nokia. | Which phone do I use now?
My runner beans are taller than me. | What do I grow in my garden?
I've got roses climbing up the porch. | Which flowers do I have?
We dug a pond last summer. | What is new in my garden?
I painted the hallway apricot. | What colour is my corridor?
I'd give anything to see Machu Picchu. | Where do I dream of travelling?
One day I'll open a little bookshop. | What is my dream for the future?
I'm putting money aside for a caravan. | What am I saving for?
I've resolved to learn to swim. | What is my New Year's resolution?
I ran into Tom at the airport, that's how it started. | How did I meet my boyfriend?
Bea and I go back to primary school. | Who is my oldest friend?
Priya is throwing me a surprise do on the 8th. | When is my party?
I'm best man at Luke's wedding. | Whose marriage am I taking part in?
I have a hot date with Sam on Saturday. | When do I meet Sam?
I'm giving the eulogy for my uncle on Tuesday. | When is the funeral I speak at?
The electrician is coming round at eleven. | When will my lights be fixed?
I see a shrink every other Friday. | How often do I go to therapy?
"""
"""What is told, and the question for it; with hardly a content word in common."""

NEVER_TOLD = """
What is my stepdad's first name?
How did my grandparents meet?
Which year did I get divorced?
What is my goddaughter called?
How tall is my wife?
What is my father-in-law's hobby?
Where did my parents go on their honeymoon?
Who was the best man at my wedding?
What does my niece study?
How old is my youngest?
When is my anniversary?
What did my ex-husband do for a living?
Which of my uncles is a priest?
Where is my brother stationed?
What is my fiancé's surname?
What is my twin sister's name?
How many grandchildren do I have?
What is my job title?
What is my hourly wage?
How many days of holiday do I get?
Which department am I in?
Who sits next to me at work?
What is my work phone number?
What time is my shift on Sunday?
Who replaced me at the bank?
What was my first job?
How long is my commute?
What is my employee number?
What is my pension worth?
When is my probation over?
What was my company's name again?
Which school did I go to as a child?
What was my best subject?
Who was my favourite teacher?
Which mark did I get in chemistry?
What is the topic of my dissertation?
When do I graduate?
What is my student number?
Where did I learn to drive?
Who is my professor?
What is my house number?
How many rooms does my flat have?
When did I move into my house?
What is my landlord's name?
Who lives above me?
What colour is my front door?
What is my postcode?
How big is my garden?
Who built my house?
When is my rent due?
Which street did I grow up on?
What is my birthplace?
Which nationality is my husband?
How many languages do I speak?
What is my blood pressure?
What am I allergic to?
Which tablets do I take at night?
What is my doctor's name?
When is my next blood test?
Which bone did I break?
When did I have my operation?
What is my therapist called?
How many hours do I sleep?
What is my resting pulse?
Which vaccine did I get in spring?
What is my shoe size?
What size is my ring finger?
How much do I weigh?
How tall am I?
What is the colour of my eyes?
What tattoo do I have?
What am I afraid of?
When is my birthday?
What is my middle name?
What is my maiden name?
What was my nickname at school?
What is my zodiac sign?
Which church do I go to?
Who did I vote for?
What is my favourite soup?
Which fruit can't I stand?
What do I put on my toast?
How do I take my tea?
Which wine did I like so much?
What is my favourite restaurant?
What did I cook last night?
What is my favourite opera?
Which band did I see in Hamburg?
Which instrument did I play as a child?
What is my favourite painting?
Which club do I play tennis at?
What is my golf handicap?
Which belt do I have in judo?
How fast did I run the 10k?
Which team does my son play for?
What is my favourite board game?
What do I collect?
Which novel did I finish last week?
What was the film I wanted to see?
What is my library card number?
Who is my favourite poet?
What is my cat's name?
How old was my rabbit when it died?
Where did I get my hamster?
What breed is my horse?
What does my parrot say?
What do I feed my tortoise?
Who looks after my fish?
When was my dog vaccinated?
What is my registration plate?
When is my car's next service?
How many miles has my van done?
What make is my motorbike?
Who insured my scooter?
Where did I park last night?
Which gate does my flight leave from?
What is my booking reference?
What is my frequent flyer number?
Where did I spend last Christmas?
Which island did I go to in May?
What is my room number?
How long was my stay in Peru?
Who did I travel to Kenya with?
What did I buy in Istanbul?
How much did my sofa cost?
How much is my mortgage?
What is my credit limit?
What is my account number?
Who do I owe money to?
What did I give my mother for her birthday?
What did I get for Christmas?
What was stolen from my car?
Where did I lose my ring?
Where are my spare batteries?
Where did I hide the chocolate?
What is my alarm code?
What is the combination of my suitcase?
What is my Netflix password?
What is my wifi called?
What is my aunt's email address?
What is my sister's mobile number?
What colour is my bicycle?
What brand is my washing machine?
How old is my laptop?
Which trees did I plant?
What is my lucky charm?
What is the name of my boat?
Where do I want to live one day?
What is my biggest regret?
What was my New Year's resolution?
Who is my best friend?
Where did I meet my girlfriend?
Who is coming to dinner on Friday?
When is my appointment with the notary?
What time is my haircut?
Where is my yoga class?
Who is my hairdresser?
What is my neighbour's name?
Which charity do I give to?
What am I doing on New Year's Eve?
"""
"""Nothing that is said in a made-up conversation tells these."""

WORDS: dict[str, str] = {}
