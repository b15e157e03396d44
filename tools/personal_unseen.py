"""The lists of `personal.py` a third time, written before words had neighbours.

Until 2026-11-23 they were only counted; then they were looked at, and rules and rows were corrected on them.
"""

IN_OTHER_WORDS = """
My dog is called Rexo. | Which pet do I have?
I have a parrot named Kiko. | What bird do I own?
I repair roofs for a living. | What is my profession?
I'm a surgeon. | Where do I work?
I took over my father's bakery. | What business do I run?
We moved to Antwerp in spring. | What is my home town now?
My flat is on the sixth floor. | How high up do I live?
I rent a room from Mrs Doyle. | Who is my landlady?
I come from Iceland. | What is my nationality?
I was raised in Zagreb. | Where did I grow up?
My name day is the sixth of December. | When do I celebrate?
I turned fifty on Saturday. | How old am I?
I've been divorced since 2019. | What is my marital status?
Me and Jonas got hitched in Vegas. | Who is my husband?
I'm expecting twins. | How many babies am I having?
My little girl is called Mina. | What is my daughter's name?
I have an older brother, Pavel. | What siblings do I have?
My gran lives in Cork. | Where is my grandmother?
Aisha has been my best mate for years. | Who is my closest friend?
My flatmate Otto snores. | Who do I share my apartment with?
I drive a Skoda. | What car do I own?
I ride my bike to the office. | How do I commute to work?
I catch the 7:15 every morning. | Which train do I take?
I could live on mangoes. | What is my favourite fruit?
I can't stand broccoli. | Which vegetable do I hate?
Cashews make my throat swell. | What am I allergic to?
I gave up meat years ago. | Am I vegetarian?
I always have porridge in the morning. | What do I eat for breakfast?
I drink nothing but oolong. | Which tea do I like?
My coffee must be black. | How do I take my espresso?
I love Sibelius. | Who is my favourite composer?
I listen to reggae all day. | What music do I like?
I play the bassoon. | Which instrument do I know?
I'm learning Finnish. | Which language am I studying?
I grew up speaking Basque. | What is my mother tongue?
I do judo twice a week. | Which sport do I practise?
I support Benfica. | What is my football team?
I collect stamps. | What is my hobby?
I just finished Emma by Jane Austen. | Which novel did I read?
Alien is the best movie ever. | What is my favourite film?
Purple suits me best of all. | What colour do I like?
I adore autumn. | What is my favourite season?
I'm a Virgo. | What is my zodiac sign?
I'm a Buddhist. | What is my religion?
I vote for the Greens. | Which party do I support?
I flew to Madeira in May. | Where did I go on holiday?
We're off to Wales on Friday. | Where are we travelling this week?
I booked the Hotel Astoria. | Where am I staying?
I fractured my ankle skiing. | What bone did I break?
I've got asthma. | Which illness do I have?
I take ibuprofen before bed. | What medicine do I use?
Dr Sand is filling my tooth on Monday. | When is my dentist appointment?
I'm seeing the barber on Thursday. | When is my haircut?
The wedding is on the ninth of August. | When am I getting married?
I lost my spectacles at the pool. | Where did I leave my glasses?
The keys hang behind the door. | Where can my key ring be found, did I say?
I hid the jewels in the attic. | Where is my necklace?
The wifi phrase is bluemoon7. | What is my internet password?
You can reach me on 0171 555 21. | What is my phone number?
Write to me at ana@post.org. | What is my email address?
My house stands in Elm Road. | Which street do I live on?
I wear a 43 in boots. | What is my shoe size?
I'm 1 metre 82. | How tall am I?
The scales said 70 kilos. | How much do I weigh?
My eyes are green. | What is the colour of my iris?
My locks are ginger. | What is my hair like?
I bought a Nikon. | Which camera do I have?
My notebook is a ThinkPad. | What laptop do I use?
I paid 90 euros for the headphones. | How much did my earphones cost?
Grandpa left me a gold watch. | What did I inherit?
Nora gave me a scarf. | What was my present?
I earn 3,100 a month. | What is my salary?
I owe Piet 200 euros. | How much debt do I have?
My account is with Rabobank. | Which bank am I a customer of?
Allianz pays if my house burns down. | Who is my insurer?
I studied physics at Leiden. | Which university did I attend?
I got my degree in 2011. | When did I graduate?
I failed chemistry. | Which subject did I flunk at school?
Mrs Lund taught us maths. | Who was my teacher?
My supervisor is Ms Ortiz. | Who is my boss?
I started at Siemens in May. | Which company am I employed by?
I'll retire at 63. | When will I stop working?
My shift begins at six. | What time do I start work?
I go to bed at ten. | When do I sleep?
I'm afraid of spiders. | What is my phobia?
I'm writing about glaciers. | What is my thesis on?
I'm planting leeks. | What vegetables do I grow?
The new couch is turquoise. | What colour is my sofa?
We have a Siamese. | What breed is our cat?
My boat is called Albatross. | What is the name of my ship?
My suitcase weighs 30 kilos. | How heavy is my luggage?
Our picnic was cancelled because of rain. | Why did we call off our outing?
My kid goes to Hillside. | Which school does my son attend?
I met Clara at a concert. | Where did I get to know my girlfriend?
Lars took the old Honda off my hands. | Who bought my motorcycle?
I run a marathon every spring. | How far do I jog?
I mislaid the umbrella on the tram. | Where did I forget my brolly?
My lawyer is called Stern. | Who is my attorney?
I'm a night owl. | Am I an early riser?
I keep bees. | Which animals do I have?
"""
"""What is told, and the question for it; with hardly a content word in common."""

NEVER_TOLD = """
Which {pet} breed do I have?
What do I call my {pet}?
Where does my {pet} sleep?
What does my {pet} weigh?
What is my {kin}'s favourite food?
Which illness does my {kin} have?
Which town is my {kin} from?
What is my {kin}'s profession?
How tall is my {kin}?
What is my {kin}'s hobby?
Which language does my {kin} speak?
Who is my {kin}'s employer?
What is the price of my {thing}?
What is my {thing} made of?
Where did I lose my {thing}?
Which shop sold me my {thing}?
How heavy is my {thing}?
What is my favourite {taste}?
Which {taste} do I enjoy most?
Who is my favourite {artist}?
What is my {number}?
What was my {number} again?
Do you know my {number}?
When is my {event}?
In which town is my {event}?
Who is invited to my {event}?
What is my religion?
What is my nationality?
Which instrument do I play?
What is my profession?
Where do I go swimming?
Which medicine do I need in the morning?
What am I afraid of?
Which bird do I keep?
What is my zodiac sign?
Which disease did I have as a child?
Which political party do I vote for?
What vehicle do I drive?
What is my salary?
When do I go to bed?
"""

WORDS = {
    "kin": "grandson stepmother mother-in-law great-aunt goddaughter neighbour plumber professor tutor",
    "pet": "chinchilla gerbil poodle parakeet terrapin donkey goose",
    "thing": "typewriter canoe blender mattress telescope tricycle cello wardrobe lawnmower earring",
    "number": "pension_number library_card_number membership_number waist_size order_number safe_code"
    " parcel_number door_PIN",
    "taste": "soup beer dance museum pudding holiday_resort flower fairy_tale",
    "artist": "novelist pianist sculptor cartoonist",
    "event": "christening court_hearing eye_test rehearsal barbecue moving_day parents'_evening",
}

LIKE = """
My dog is called Rexo. | What is my cat called?
I have a parrot named Kiko. | What is my hamster called?
I could live on mangoes. | What is my favourite vegetable?
I play the bassoon. | What instrument does my sister play?
My brother Anton works for a bakery. | What is my uncle's job?
I'm learning Finnish. | Which sport am I learning?
I fractured my ankle skiing. | What did my son break?
My flight leaves on Friday. | When does my ferry leave?
I love Sibelius. | Who is my favourite painter?
My mum is a nurse. | What does my father do?
I drive a Skoda. | What does my wife drive?
I bought a Nikon. | Which laptop did I buy?
My eyes are green. | What colour is my hair?
I earn 3,100 a month. | What is my rent?
My gran lives in Cork. | Where does my cousin live?
My locker number is 17. | What is my seat number?
I flew to Madeira in May. | Where did I go in October?
I collect stamps. | What is my daughter's hobby?
My shift begins at six. | When does my lesson begin?
I owe Piet 200 euros. | How much does Lars owe me?
The new couch is turquoise. | What colour is my armchair?
My suitcase weighs 30 kilos. | How heavy is my bicycle?
I lost my spectacles at the pool. | Where did I lose my ring?
My house stands in Elm Road. | Which street is my office in?
"""
"""Told is something like what is asked for, and not that."""
