"""Questions that only the person can answer who asks them, for `measure_gone.py`: held out.

Written down before the rules of `h2o_chat/chat/personal.py` were, and no rule was chosen on them.
"""

NEVER_TOLD = """
What is the name of my {kin}?
What's my {kin}'s name?
What is my {kin}'s job?
How old is my {kin}?
When is my {kin}'s birthday?
Where does my {kin} work?
Where did my {kin} go to school?
What does my {kin} do for a living?
Which city does my {kin} live in?
What did my {kin} give me for Christmas?
What is my {kin} allergic to?
Who is my {kin} married to?
When did I last see my {kin}?
What was the name of my first {pet}?
How old is our {pet}?
What breed is my {pet}?
What do I feed my {pet}?
When did we adopt our {pet}?
What colour is my {thing}?
What brand is my {thing}?
Where did I leave my {thing}?
Where did I put the {thing}?
When did I buy my {thing}?
How much did I pay for my {thing}?
Who gave me my {thing}?
Which {thing} did I choose in the end?
Where do I keep the spare {thing}?
What is my {number}?
Do you remember my {number}?
Can you tell me my {number} again?
I forgot, what is my {number}?
What {number} did I tell you?
Could you remind me what my {number} is?
What's the {number} I gave you?
When is my {event}?
What time does my {event} start?
Where is my {event} on {day}?
What day is my {event}?
Which room is my {event} in?
Who is coming to my {event}?
How long is my {event}?
Did I tell you when my {event} is?
Do you know where my {event} takes place?
What did I say about my {event}?
What is my favourite {taste}?
Which {taste} do I like best?
What kind of {taste} do I hate?
Who is my favourite {artist}?
Where was I born?
What year was I born?
How old am I?
How tall am I?
What do I do for a living?
Which company do I work for?
What is my supervisor called?
What did I study at university?
Which languages do I speak?
Which town did I grow up in?
Where did I spend my last holiday?
Where am I going on {day}?
What am I doing on {day}?
Who am I meeting on {day}?
What did I have for breakfast on {day}?
What did I do on {day}?
How many {kin}s do I have?
How many {pet}s do I own?
What floor is my flat on?
What street do I live on?
Which train do I take to work?
What size are my shoes?
What is my blood group?
What am I allergic to?
Which medicine do I take in the evening?
What was the title of the book I told you about?
What did I name my {pet}?
Am I married?
Do I have any {pet}s?
What was it that I wanted to buy on {day}?
"""

WORDS = {
    "kin": "aunt uncle grandmother nephew cousin stepfather godson wife landlord teacher trainer manager",
    "pet": "hamster tortoise goldfish pony rabbit canary lizard ferret",
    "thing": "umbrella sofa laptop scooter kettle suitcase guitar tent necklace camera bookshelf passport",
    "number": "phone_number postcode bank_PIN passport_number gym_card_number flight_number licence_plate"
    " student_number shoe_size lottery_number",
    "event": "interview wedding recital check-up exam graduation driving_test haircut farewell_party flight",
    "taste": "pizza ice_cream opera cheese sport painter season perfume poem board_game",
    "artist": "singer author director composer footballer comedian",
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
}

ADVICE = """
What is my best option if the bank says no?
What are my chances of getting a visa?
What should my next step be?
How do I get my cat to stop scratching the sofa?
What do you think of my idea?
Can you help me with my homework?
Where can I get my bicycle repaired?
What is wrong with my code?
Who can I ask about my taxes?
What do I need for my first marathon?
How much should I save for my retirement?
When should I water my tomatoes?
How many litres of paint do I need for my kitchen?
Which of these words is better in my essay?
What do I do if my flight is cancelled?
Could you check my grammar?
Would you read my poem?
What is a good name for my shop?
What can I cook with the eggs I have?
Is my English good enough?
How long does it take to get my passport renewed?
Why does my computer make a noise?
Do I need a permit to build my shed?
What happens to my money if the bank closes?
Where do I find the settings on my phone?
Am I too old to learn the piano?
What would you do in my place?
Can you write a letter to my landlord?
What did you mean by my tone?
How do I tell my parents?
What is the best way to clean my oven?
Which plants can I put on my balcony?
What are some good questions for my interview?
Does my plan make sense to you?
How can I remember my dreams?
Who do you think will win our game?
What are my rights as a tenant?
What else do I have to bring to my exam?
May I ask you about my insurance?
Where do we go from here?
What's the difference between my salary and my income?
How do I know whether my dog is ill?
Do you know a good film for my children?
Can you tell me how to fix my tap?
What if my boss does not agree?
When is it best to sell my house?
What makes my bread so hard?
Which exercise is good for my back?
How often should I change my oil?
What will happen to my plants in winter?
"""
"""Held out too: they speak of what is one's own, and ask for what anybody may know."""

HELD = """
I have a hamster called Pogo. | What is my hamster called?
My aunt Beatrice turned 71 last week. | How old is my aunt?
Our landlord is Mr Okafor. | Who is our landlord?
I parked the car on level 3. | Where did I park the car?
My PIN is 4417, please keep it safe. | What is my PIN?
I was born in Tampere in 1988. | Where was I born?
My flight leaves at 6:40 on Friday. | When does my flight leave?
I bought the tent for 120 dollars. | How much did I pay for the tent?
I have three nephews. | How many nephews do I have?
My favourite cheese is gouda. | What is my favourite cheese?
I studied geology in Lyon. | What did I study?
My wife gave me a red scarf for Christmas. | What did my wife give me for Christmas?
My interview is on Tuesday at noon. | When is my interview?
I am allergic to peanuts. | What am I allergic to?
The spare key is under the flower pot. | Where is my spare key?
I take the 7:15 train every morning. | Which train do I take in the morning?
My brother Anton works for a bakery. | Where does my brother work?
I speak Polish and Italian. | Which languages do I speak?
We adopted our ferret in May. | When did we adopt our ferret?
My shoe size is 43. | What is my shoe size?
My graduation is in the old town hall. | Where is my graduation?
I am reading a book called The Salt Road. | What is the book called that I am reading?
My phone number ends in 778. | Do you remember my phone number?
I grew up in a village near Graz. | Where did I grow up?
I left my umbrella on the bus. | Where did I leave my umbrella?
My trainer is called Ines. | What's my trainer's name?
I chose the blue sofa in the end. | Which sofa did I choose?
I am meeting Carla on Thursday. | Who am I meeting on Thursday?
My licence plate is KX 552. | Can you tell me my licence plate?
Our wedding is on the third of June. | When is our wedding?
My daughter plays the cello. | What does my daughter play?
I weigh 68 kilos. | How much do I weigh?
My son's school is called Hillside. | What is the name of my son's school?
The title of my thesis is Slow Rivers. | What is the title of my thesis?
I have a driving test next Wednesday. | When is my driving test?
I named the canary Figaro. | What did I name the canary?
My blood group is A positive. | What is my blood group?
My room is on the fourth floor. | Which floor is my room on?
I lent my drill to Marek. | Who did I lend my drill to?
My favourite singer is Adela Voss. | Who is my favourite singer?
"""
"""Held out: what is told, and the question for it; both have words in common."""

IN_OTHER_WORDS = """
I work as a carpenter. | What is my job?
I'm Leonie, by the way. | What is my name?
You can call me Basti. | What's my name?
I moved to Porto last year. | Where do I live?
I turned 34 in March. | How old am I?
My husband is called Tim. | Who am I married to?
I adore liquorice. | What is my favourite sweet?
We have twins, Ada and Ben. | What are my children called?
I drive an old Saab. | What car do I have?
I grew up speaking Welsh. | What is my mother tongue?
My mum is a nurse. | What does my mother do?
I can't eat nuts. | What am I allergic to?
We're getting married in June. | When is our wedding?
I play the oboe. | Which instrument do I know?
I'm flying to Oslo on Monday. | Where am I going on Monday?
Rexo is my dog. | What pet do I own?
My birthday is on the 4th of May. | When was I born?
I have to see the dentist on Friday. | When is my appointment?
The new couch is green. | What colour is my sofa?
My kid goes to Hillside school. | Which school does my son attend?
I bought a Canon yesterday. | What camera did I get?
I support Celtic. | What is my football team?
I hate spinach. | Which vegetable do I dislike?
I'm a vegetarian. | What is my diet?
My keys hang behind the door. | Where do I keep my keys?
I finished university in 2011. | When did I graduate?
My flat is in Baker Street. | What is my address?
Our teacher is Mrs Lund. | Who teaches me?
My mobile is 0171 555 21. | What's my phone number?
I put the passport into the blue box. | Where is my passport?
"""
"""Held out: the question says it in other words, most of them with none in common."""

LIKE = """
I have a hamster called Pogo. | What is my tortoise called?
My aunt Beatrice turned 71 last week. | How old is my grandmother?
I was born in Tampere. | Where was my wife born?
My PIN is 4417. | What is my licence plate?
My flight leaves at 6:40 on Friday. | When does my train leave?
I bought the tent for 120 dollars. | How much did I pay for the canoe?
My favourite cheese is gouda. | What is my favourite perfume?
My wife gave me a red scarf for Christmas. | What did my cousin give me for Christmas?
My interview is on Tuesday at noon. | When is my haircut?
My brother Anton works for a bakery. | Where does my uncle work?
My shoe size is 43. | What is my ring size?
My phone number ends in 778. | What is my passport number?
My trainer is called Ines. | What is my landlord called?
I lent my drill to Marek. | Who did I lend my ladder to?
My favourite singer is Adela Voss. | Who is my favourite author?
My son's school is called Hillside. | What is the name of my daughter's school?
I left my umbrella on the bus. | Where did I leave my suitcase?
Our wedding is on the third of June. | When is our housewarming?
My sister is a vet. | What does my nephew do for a living?
The name of my doctor is Lem. | What is the name of my lawyer?
My dog is called Rexo. | What is my goldfish called?
My laptop is silver. | What colour is my scooter?
I take the 7:15 train. | Which bus do I take?
My gym card number is 991. | What is my library card number?
"""
"""Held out: told is something like what is asked for, and not that."""
