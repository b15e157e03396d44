"""The lists of `personal.py` once more, written after the rules were final: nothing was changed for them."""

NEVER_TOLD = """
What is my {kin} called?
Where is my {kin} from?
What does my {kin} like to eat?
How tall is my {kin}?
When did my {kin} move out?
Which instrument does my {kin} play?
What is my {kin}'s address?
Who is my {kin} dating?
When did my {kin} get married?
How many children does my {kin} have?
What car does my {kin} drive?
Which hospital is my {kin} in?
What was my {kin} wearing?
What are the names of my {pet}s?
When was my {pet} last at the vet?
Where did I get my {pet}?
How much does my {pet} weigh?
What is wrapped around my {thing}?
Where is my {thing}?
Where have I put my {thing}?
Who borrowed my {thing}?
How old is my {thing}?
How much was my {thing}?
What's written on my {thing}?
What model is my {thing}?
Which shop did I buy my {thing} in?
When is the guarantee of my {thing} over?
What's my {number}?
Remind me, what was my {number}?
Do you still know my {number}?
Have I told you my {number}?
Did I mention my {number}?
Can you recall my {number}?
Sorry, what was the {number} I told you?
Hey, do you remember what my {number} was?
At what time is my {event}?
When does my {event} begin?
Who did I invite to my {event}?
Which day did I choose for my {event}?
How many people are coming to our {event}?
What do I wear for my {event}?
What did I plan for our {event}?
Where did we hold our {event}?
Which {food} did I order?
What {food} am I allergic to?
Who taught me to cook {food}?
How do I like my {food}?
How often do I eat {food}?
What was the first {food} I ever tried?
What is my mother's maiden name?
What is my middle name?
What was my first job?
Which football club do I support?
What is my star sign?
What is my hometown?
Who is my doctor?
Which gym do I go to?
What was my nickname at school?
How many siblings do I have?
When do I usually get up?
Which side of the bed do I sleep on?
What is my salary?
How long have I been married?
What have I told you about my {kin}?
Where will you find my {thing}, did I say?
Which foot did I break in {month}?
Whom did I visit in {month}?
Where was I in {month}?
What did I win in {month}?
Which book did I finish in {month}?
"""

WORDS = {
    "kin": "grandfather niece brother-in-law godmother fiancé roommate tenant coach cleaner lawyer",
    "pet": "guinea_pig budgie gecko spaniel kitten mule piglet cockatoo",
    "thing": "wallet drill rucksack helmet toaster violin watch projector bracelet wheelbarrow snowboard"
    " kayak",
    "number": "bank_account_number zip_code insurance_number alarm_code seat_number booking_number"
    " tax_number customer_number ring_size collar_size",
    "event": "job_interview baptism housewarming surgery concert anniversary swimming_lesson trial"
    " picnic talk",
    "food": "lasagne curry porridge sushi trifle goulash dumplings waffles",
    "month": "January February April June August September October December",
}

ADVICE = """
What is the fastest way to my office?
What can my cat eat?
How do I ask my boss for more money?
Do I have to tell my bank?
Where should I put my money?
What kind of dog would suit my family?
Which colour goes with my curtains?
Is it normal that my knee clicks?
Why is my bread flat?
Will my plants survive the frost?
Can my landlord raise my rent?
What does it mean when my engine light is on?
How long can I keep my leftovers?
How many calories are in my lunch?
What makes my laptop slow?
Could I have caught it from my son?
What would be a fair price for my bike?
Are there any good films about my city?
Who could help me with my roof?
When should I plant my bulbs?
What is a synonym for what I wrote?
What would you call my band?
Where can we eat near our hotel?
Would you rate my poem?
How much does it cost to paint my house?
What do doctors say about my kind of headache?
Do you want to hear my story?
Can I freeze my soup?
What comes after my first draft?
How can I calm my baby?
"""

HELD = """
My niece is called Wilma. | What is my niece called?
Our kitten is Smudge. | What is our kitten called?
I put my wallet in the blue coat. | Where did I put my wallet?
My kayak weighs 21 kilos. | How much does my kayak weigh?
The alarm code is 5590. | What is the alarm code I gave you?
My zip code is 80331. | What's my zip code?
My job interview is on the ninth. | When is my job interview?
We invited forty people to our anniversary. | How many people did we invite to our anniversary?
I ordered the lasagne. | Which dish did I order, the lasagne?
My roommate Ilse plays the harp. | Which instrument does my roommate play?
My middle name is Aurelia. | What is my middle name?
I have two siblings. | How many siblings do I have?
My first job was in a cinema. | What was my first job?
My doctor is Dr Yilmaz. | Who is my doctor?
I was in Lisbon in February. | Where was I in February?
I broke my left foot in June. | Which foot did I break in June?
My coach is from Ghana. | Where is my coach from?
Marek borrowed my drill. | Who borrowed my drill?
I go to a gym called Atlas. | Which gym do I go to?
My tax number is 44 201. | Do you remember my tax number?
I visited Pia in August. | Whom did I visit in August?
I sleep on the left side of the bed. | Which side of the bed do I sleep on?
My violin was made in 1902. | When was my violin made?
My nickname at school was Fox. | What was my nickname at school?
I have been married for six years. | How long have I been married?
My watch is a present from Nora. | Who gave me my watch?
I usually get up at five. | When do I usually get up?
I got the spaniel from a farm. | Where did I get my spaniel?
My salary is 3,100 a month. | What is my salary?
My seat number is 14C. | What was my seat number?
I learned to swim in Bari. | Where did I learn to swim?
My surgery is next Monday. | When is my surgery?
I paid 90 euros for the helmet. | How much did I pay for my helmet?
My lawyer has an office in Kiel. | Where does my lawyer have his office?
I finished Middlemarch in April. | Which book did I finish in April?
My daughter is afraid of bees. | What is my daughter afraid of?
I've been learning Dutch since May. | Which language have I been learning?
My grandfather was a sailor. | What was my grandfather?
My hometown is Brno. | What is my hometown?
I keep my helmet in the cellar. | Where do I keep my helmet?
"""

IN_OTHER_WORDS = """
I teach maths at a primary school. | What is my profession?
I am Tomasz, nice to meet you. | What is my name?
My home is in Ghent. | Which city do I live in?
I was born in 1990. | How old am I?
I'm engaged to Clara. | Who is my fiancée?
I could eat mangoes all day. | What is my favourite fruit?
Our baby is due in May. | When am I giving birth?
I ride a Vespa. | What scooter do I have?
Our cat just had kittens, Ola and Bo. | What are my pets called?
I sing tenor. | What is my voice in the choir?
I'm off to Crete next week. | Where am I travelling next week?
My surname is Okoye. | What is my last name?
I suffer from migraines. | What is my illness?
I bank with Triodos. | Which bank do I use?
I take my tea without sugar. | How do I drink tea?
I was raised by my grandmother. | Who brought me up?
My suitcase weighs 30 kilos. | How heavy is my luggage?
I have got an Irish passport. | What is my nationality?
I earn 3,000 a month. | What is my income?
I hurt my wrist on Sunday. | What did I injure?
"""

LIKE = """
My niece is called Wilma. | What is my nephew called?
My kayak weighs 21 kilos. | How much does my snowboard weigh?
My zip code is 80331. | What is my alarm code?
My job interview is on the ninth. | When is my swimming lesson?
My roommate plays the harp. | Which instrument does my fiancé play?
My middle name is Aurelia. | What is my mother's maiden name?
My doctor is Dr Yilmaz. | Who is my dentist?
I was in Lisbon in February. | Where was I in October?
I broke my left foot in June. | Which arm did I break in April?
Marek borrowed my drill. | Who borrowed my toaster?
My tax number is 44 201. | What is my seat number?
My violin was made in 1902. | When was my piano made?
I usually get up at five. | When do I usually go to bed?
My grandfather was a sailor. | What was my grandmother?
My wallet is in the blue coat. | Where is my bracelet?
My coach is from Ghana. | Where is my tenant from?
My first job was in a cinema. | What was my first car?
Our picnic is on Sunday. | When is our concert?
My ring size is 54. | What is my collar size?
I ordered the curry. | Which dessert did I order?
"""
