"""Questions in other words with which the table of `neighbours.py` was written: seen, never reported."""

IN_OTHER_WORDS = """
I have a terrier named Bobo. | What pet do I have?
Our rabbit is called Flop. | What animal do we keep?
I'm a plumber. | What is my job?
I teach biology. | What do I do for a living?
I work as an accountant. | What is my occupation?
I work at Nokia. | Who is my employer?
My office is in Harbour Street. | Where is my workplace?
I live in Leeds. | Which city is my home in?
We bought a house in Malmo. | Where do I live?
I'm from Chile. | Which country was I born in?
I was born in Turin. | What is my home town?
I was born on the third of March. | When is my birthday?
I'm 47. | How old am I?
I just turned twenty. | What is my age?
I'm married to Ravi. | What is the name of my spouse?
My wife is called Esra. | Who is my partner?
My boy is named Luca. | What is my son's name?
I have two sons and a daughter. | How many kids do I have?
My sister is called Ines. | Who are my siblings?
My dad is an engineer. | What is my father's profession?
My mum is 60. | What is the age of my mother?
My auntie lives in Graz. | Which relative of mine is in Austria?
Tom is my best friend. | Who is my closest buddy?
I drive a Volvo. | What is my car?
I have a red Mazda. | Which vehicle do I own?
I take the bus to work. | How do I get to the office?
I love strawberries. | Which berry is my favourite?
I really like lasagne. | What is my favourite dish?
I hate mushrooms. | Which food do I dislike?
I can't drink milk. | What am I intolerant of?
Peanuts make me ill. | What is my allergy?
I don't eat animals or eggs. | What is my diet?
I had toast and jam this morning. | What was my breakfast?
I always order a cappuccino. | Which coffee do I drink?
My favourite wine is Merlot. | Which drink do I prefer?
I'm crazy about Mozart. | Which composer do I love?
I listen to jazz. | What is my taste in music?
I play the cello. | What instrument can I play, do you remember?
I speak Turkish. | What is my language?
I'm taking French classes. | What language am I learning?
I play tennis on Sundays. | Which sport do I do?
I root for the Lakers. | Who is my favourite basketball team?
I paint in my free time. | What is my hobby?
I enjoy knitting. | What is my pastime?
I'm reading Moby Dick. | What is my current book?
Casablanca is the film I love most. | What is my favourite movie?
My car is turquoise. | What colour is my vehicle?
I love blue. | What is my favourite colour?
Winter is the time I enjoy most. | What is my favourite season?
I'm a Capricorn. | What is my star sign?
I am Catholic. | What is my faith?
I went to Norway last summer. | Where did I spend my vacation?
We fly to Japan in April. | What is my travel destination?
I'm staying at the Hilton. | What is my hotel?
I broke my arm. | What did I injure?
I have diabetes. | What disease do I suffer from?
I take aspirin every day. | What is my medication?
My doctor wants to see me on Friday. | When is my medical appointment?
I have my driving exam on Monday. | When is my test?
We get married in May. | When is my wedding?
I left my purse on the train. | Where did I lose my wallet?
My phone is in the kitchen. | Where is my mobile?
I put the money under the mattress. | Where is my cash?
My PIN is 4411. | What is my secret code?
The code for the door is 9981. | What is the combination for my entrance?
My handy number is 555 0123. | What is my telephone number?
My mail goes to leo@web.de. | What is my e-mail address?
I live at 12 Oak Lane. | What is my address?
I take size 38 in shoes. | How big are my feet?
I'm six feet tall. | What is my height?
I weigh 81 kilos. | What is my weight?
I have brown hair. | What is my hair colour, brunette or blonde?
I got a Dell from my company. | Which computer do I have?
I use a Samsung. | What phone do I have?
My coat cost 200 dollars. | What was the price of my jacket?
My uncle gave me a ring. | Who gave me my jewellery?
I make 50,000 a year. | What is my income?
My rent is 900 euros. | How much do I pay for my apartment?
I study law at Oxford. | What is my subject at university?
I finished school in 2005. | When did I graduate?
I was bad at maths. | What was my worst subject at school?
Mr Brown teaches us history. | Who is my teacher?
My boss is Linda. | Who is my manager?
I work nights. | What are my working hours?
I get up at seven. | When do I wake up?
I'm scared of snakes. | What am I afraid of?
I want to become a pilot. | What is my dream job?
I grow tomatoes. | What do I have in my garden?
My couch is grey. | What colour is my sofa?
I have a Persian cat. | Which breed is my kitty?
Our yacht is called Mermaid. | What is the name of my boat?
My bag weighs 20 kilos. | How heavy is my suitcase?
The party starts at eight. | When does my celebration begin?
My child goes to St Mary's. | Which school does my daughter attend?
I met Paul at university. | Where did I meet my boyfriend?
My neighbour is called Fritz. | Who lives next door to me?
Dr Yilmaz is my GP. | Who is my doctor?
I bought a Stradivarius. | What violin do I have?
My flight leaves at noon. | When does my plane take off?
I keep goldfish. | What pets do I have?
I bake bread every week. | What do I do on weekends, did I say?
I have a meeting with Carla on Tuesday. | Who am I seeing on Tuesday?
My dog is called Rexo. | What do I call my puppy?
My name is Vikedo. | What am I called?
My locker is number 17. | Where is my stuff stored?
My wifi password is K7X. | How do I log into my internet, which word did I tell you?
My keys are in the old drawer. | Where did I leave my keyring?
My dentist appointment is on Monday at 3 pm. | When is my tooth checked?
My bicycle is dark grey. | What colour is my bike?
"""

LATER = """
I've got a spaniel. | What dog do I have?
There's a tortoise called Speedy in my garden. | Which pet lives with me?
I sell insurance. | What is my line of work?
I'm a teacher at a primary school. | What is my career?
I run a small cafe in Lyon. | What is my business?
I'm retired. | Do I have a job?
I live on the third floor. | Which storey is my flat on?
I share my flat with Olga. | Who is my roommate?
My husband is from Peru. | Where does my spouse come from?
I got married to Anna last June. | Who is my wife?
My daughter just turned six. | How old is my little girl?
I have three brothers. | How many siblings do I have?
My granddad was a miner. | What was my grandfather's job?
My cousin is called Bert. | What relatives do I have?
I got my driving licence in 2001. | Since when have I been able to drive, do you remember?
I go to work by tram. | How do I commute?
I prefer pears to anything else. | What is my favourite fruit?
My favourite is chocolate cake. | What dessert do I like most?
I detest olives. | What do I dislike eating?
Shellfish gives me a rash. | What is my allergy?
I only drink mineral water. | Which beverage do I prefer?
I usually have soup at noon. | What do I eat for lunch?
My favourite group is Abba. | Which band do I like?
I play the drums in a band. | What is my instrument?
Bach is the best. | Who is my favourite composer?
I read a lot of Agatha Christie. | Who is my favourite author?
I speak fluent Danish. | Which languages do I know?
My first language is Polish. | What is my native tongue?
I do yoga. | What exercise do I do?
I go running every morning. | What sport do I practise?
I'm a fan of Arsenal. | Which football club do I support?
I like to build model trains. | What is my hobby?
I'm Jewish. | What is my religion?
I'm a Leo. | What is my star sign?
I'm Hungarian. | What nationality am I?
We spent two weeks in Crete. | Where was my last vacation?
I'm flying to Lima tomorrow. | What is my travel destination?
I sprained my wrist. | What injury do I have?
I have high blood pressure. | What is my medical condition?
I have to take insulin. | Which medication do I need?
I'm having my eyes checked on Tuesday. | When is my eye appointment?
I have to be in court on Friday. | When is my hearing?
The keys are in the blue jar. | Where did I put my keyring?
I hid the money in the piano. | Where did I hide my savings?
I lost my ring in the garden. | Where did I leave my jewellery?
My number is 0664 12345. | How can my phone be reached, which digits did I tell you?
You can write to me at bob@x.com. | What is my email?
I wear size 40. | What are my shoes' size?
I'm 180 centimetres tall. | What is my height?
I'm at 75 kilos now. | What is my weight?
I'm blonde. | What is my hair colour?
I've got a Sony. | What television do I have?
My bike is a Brompton. | What bicycle do I ride?
The tickets cost me 80 euros. | What price did I pay for my tickets?
I got a watch from my father. | Who gave me my gift?
I get 2,000 a month. | What is my salary?
My mortgage is 100,000 euros. | How much debt do I have?
I'm a customer of HSBC. | What is my bank?
I went to Harvard. | Which university did I attend?
I have a degree in history. | What did I study?
Miss Honey is my form tutor. | Who is my teacher?
I report to Mr Burns. | Who is my boss?
I have been with IBM for ten years. | Which company do I work for?
I start work at nine. | When does my shift begin?
I'm up at five every day. | When do I wake up?
Heights scare me. | What am I afraid of?
I dream of sailing round the world. | What is my biggest wish?
I've planted roses. | Which flowers do I have in my garden?
My yacht is called Gull. | What is my boat called?
My rucksack weighs nine kilos. | How heavy is my bag?
Our twins go to Elm School. | Where do my children go to school?
I know Jim from the army. | Where did I meet Jim?
I'm moving out in May. | When is my move?
My licence plate says B-XY 12. | What is my car's registration?
"""
"""Written when the first were found; then a dozen rows were added for them."""
