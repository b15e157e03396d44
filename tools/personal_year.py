"""Questions for what was never told, and facts asked for in other words, as somebody would type them who has
chatted for long; written by one who had not seen the program (2026-11-25). Looked at, and learned from, since.
"""

NEVER_TOLD = """\
What did I name the hedgehog that lives under our shed?
where did i stash the spare car key
Who was going to drive me to the cataract op?
When does my passport run out?
Which of my two sisters is allergic to walnuts?
How many jars of plum jam did I put up this autumn?
how long have me and Dean been separated now
Why did I stop speaking to my brother-in-law?
Do I take the water tablet in the morning or at night?
Did I ever tell you my confirmation name?
Have I paid the plumber yet?
Was I seven or eight when we left Trieste?
Is my dentist the one on Mill Road or the other one?
Tell me the name of my first boyfriend.
Remind me what I wanted to get Nuala for her fortieth.
Do you remember what colour I painted the back bedroom?
Can you recall the surname of the lady who bought our piano?
I forgot which locker I have at the swimming pool.
whats my shoe size again, the eu one
What was it my father used to whistle while shaving?
Where'd I say I buried the cat?
who's got my ladder
When did I last have my eyes tested?
How many grandchildren has my neighbour got, did I say?
For how many years was I in the choir?
Why am I not allowed grapefruit anymore?
do i like coriander or am i one of the soap people
Did I lock in the mortgage for two years or five?
Have I been to Lisbon before, or was that only talk?
was my granddad on the boats or in the mines
Is my blood type O negative?
Tell me about the row I had with my landlady.
remind me my reg number pls
Do you recall how I met my husband?
What's the nickname my rugby mates gave me?
I can't think what I called my sourdough starter.
My locker combination at work, what was it?
In which drawer did I put the baptism certificates?
On what day does my cleaning lady come?
At what age did my mother go into the home?
From whom did I inherit the grandfather clock?
With who I am sharing the office now?
Up to what page did I get in the Russian novel?
What dosage of thyroxine am I on these days?
Where do my in-laws spend their winters?
who did i lend the tent to
Whose wedding is it I'm going to in June?
When's my next hygienist appointment?
Which bus do I catch to get to physio?
How much did I pay for the blue armchair?
how many sugars do i have in tea lol
How often do I ring my aunt in Adelaide?
How tall is my youngest now?
How did I break my wrist?
How come I never finished my degree?
Why did I say I hate Sundays?
Am I still owed money by anybody?
Am I meant to be gluten free or just cutting down?
Are my parents both still living?
Are the twins mine or my sister's, did I make that clear to you?
Did my son pass his driving test in the end?
Did I end up choosing the grey tiles or the green ones?
did i say yes to the job in leeds
Did I mention who's watching the dog while I'm in Greece?
Had I already retired when Tom fell ill?
Has my boss a name, or did I only ever call him the boss?
Have I got any nephews?
have i told you what my tattoo says
Have I any fear that I confessed to you?
Was it my left knee or my right they operated on?
Was I ever a smoker?
Were we married in a church or at the town hall?
Were my stitches due out on Thursday?
is kiki the budgie or the guinea pig
Is my anniversary before or after Easter?
Does my wife prefer lilies or freesias?
Do my colleagues know I'm pregnant, or have I kept it quiet?
do we have a cat flap yet
Do I owe Hamish twenty quid or was it thirty?
Could you tell me which pew I always sit in?
Could you remind me of the title I gave my memoir?
Would you happen to remember my old Bristol address?
Can you say what it was I promised my late mother?
can u remember what i got on my theory test
Can you bring to mind the poem I read at the funeral?
Please tell me my membership number for the bowls club.
Please, what is the name of my son his teacher?
Tell me again why I left the parish council.
tell me which ex i said was the worst lmao
Tell me how I take my steak.
Tell me when the boiler man's due.
Tell me what my little one is going as for Halloween.
Remind me where Grandma was born.
Remind me how much I've saved for the camper van.
Remind me of my goal weight.
remind me who's bringing the potato salad saturday
Remind me, which of the hens stopped laying?
I've forgotten the name of my consultant at the hospital.
I forget, did I sell the caravan?
I forgot what my daughter studies at university.
I don't remember in which year I came to Canada.
I can't recall what instrument I played in school band.
I cannot for the life of me remember what I called my first car.
i blanked on my gym pin, what is it
I had a plan for the long weekend. What was it?
I told my niece I'd make her something. What?
I made a bet with Uncle Walt. What were the stakes?
I had a dream I described to you. What happened in it?
There was a book club pick I couldn't stand. Which one?
My pottery class is on which evening?
My star sign is what, do you have it?
My mother's maiden name, if you'd be so kind.
my wifi password??
My best friend from nursing school, what was her name?
Our honeymoon, where was that?
Name my three goats.
Name the street I grew up on.
Give me the date my cast comes off.
List the countries I told you I've lived in.
List everybody who's coming to mine for Thanksgiving.
Say, what's my bowling average?
Say what my kid brother does for a living.
Hey what was my ring size
Hey, you know what I called the new puppy?
ok so what did i decide about the bangs
Right, who's my emergency contact?
Well now, what was my late wife's favourite hymn?
Oi, what's my best 5k time?
Sorry love, what was my granddaughter's middle name?
So what was my excuse for skipping the reunion?
Erm, how old did I say my dad was?
yo which tooth am i getting pulled tuesday
Quick one: my hotel in Prague?
Just checking, what time is my interview tomorrow?
Any idea what I weighed in March?
Any memory of what I thought about the new vicar?
You know my lodger? What does he pay me a month?
You know that scar on my chin, how'd I get it?
You wouldn't know where I left my reading glasses, I suppose?
What vegetable did I swear I'd never eat again?
What do I call my husband when I'm cross with him?
What did the vet say about Biscuit's hip?
What grade did I get in A-level French?
What is the job of my cousin in Rotterdam?
What are my kids allergic to?
What breed is my mum's dog?
What were we having for Christmas dinner this year?
What was my opinion about the new bridge by our house?
what size bed did i order
What shift am I on next week?
What floor do I live on?
What time do I usually get up for the milking?
What perfume do I always wear?
What sort of cake did I have at my wedding?
What medal did my great-grandfather bring home?
What kept me from going to my brother's retirement do?
What has my physiotherapist forbidden me to do?
What have I given up for Lent?
What, pray, was the name of my old headmistress?
What song do I want played when they carry me out?
what was the last thing i said to marco before he moved out
What's the most I've ever lost at poker?
What's my daughter-in-law's birthday?
Where did I do my military service?
Where have I hidden the Christmas presents?
Where is my brother stationed?
where do i get my hair done
Where was I when my waters broke?
Where am I planning to scatter Frank's ashes?
Where does my stepson work?
Who taught me to knit?
Who have I chosen as godfather for the baby?
Who am I named after?
who snores worse me or my husband, according to me
Who did I vote for as club secretary?
Who at work has been getting on my nerves?
Who has a key to my flat?
When did I have my gallbladder out?
When do we exchange contracts on the bungalow?
When will my sister arrive from Manila?
when was my last period
Since when am I a vegetarian?
Which hand do I write with?
Which of my neighbours plays the drums?
Which side of the bed do I sleep on?
Which football team did my late father support?
Which pills make me dizzy?
Which allotment plot is ours?
which one of my kids is scared of balloons
How many times have I moved house?
How many miles were on my truck when I bought it?
How long did I have to wait for my hip?
How long has my tortoise been with us?
How do I feel about my new manager?
How do I like my eggs?
How did my audition go?
how much rent do i pay
How far do I walk to work?
How is it called, the village of my grandparents?
Why did I change my surname?
"""

IN_OTHER_WORDS = """\
I drive a bin lorry for the council, up at four most days. | What do I do for a living?
Our Josie is starting at Durham in October, reading chemistry. | Which university is my daughter off to?
Peanuts would put me in hospital. | What am I allergic to?
I'm on my feet all day pulling pints at the Fox and Hounds. | Where do I work?
The stork is due in the second week of February, they reckon. | When's the baby coming?
We said our vows on the 3rd of May 1986. | What's the date of my wedding anniversary?
I've been off the fags since New Year's Day. | When did I give up smoking?
My better half spends his weekends up to his waist in the river after trout. | What is my husband's hobby?
There's a ginger tom who rules this house, goes by Marmaduke. | What's my cat called?
I blew out thirty-four candles last Saturday. | How old am I?
We got the keys to a semi in Stockport last week. | In which town is our new home?
Mum's heart gave out in 2011. | What year did I lose my mother?
I came into this world in a lighthouse keeper's cottage on Orkney. | Where was I born?
I can't stand mushrooms, never could, slimy things. | Which food do I dislike?
The bank takes 840 out of my account every month for the roof over our heads. | How much is our mortgage?
Pete walked out on me in August, after eleven years together. | Who broke up with me?
I get the shakes if I have to go up a ladder. | What am I scared of?
my little fiesta finally died so i got myself a used skoda | what car do i have these days
They cut out my appendix when I was nine. | What operation did I have as a child?
I'm saving every penny so I can see the northern lights with my own eyes. | What's my dream trip?
The fella next door practises his trombone till midnight. | What noise does my neighbour bother me with?
My brother wears the uniform of the Portuguese navy. | What job does my sibling have?
Nan swore by a drop of whisky in her porridge. | What did my grandmother add to her breakfast?
I spent six years behind the counter in a Glasgow post office before the kids. | What was my employment prior to motherhood?
Wednesdays I'm in the church hall doing line dancing. | On which evening do I have my hobby class?
The quack says my sugar's too high and I've to prick my finger every morning. | What illness was I diagnosed with?
I tucked the spare key beneath the stone frog. | Where's the extra one for the front door hidden?
I lent Rosalind my sewing machine till Easter. | Who's still got that stitching contraption of mine?
Tilly lost her first front one and the fairy left her two euros. | How much did my girl get for her tooth?
We're flying to Malta on the ninth. | Where are we going on holiday?
My old man laid bricks all his life. | What was my father's trade?
I've got five of the little terrors in my flat every weekend, all my sons' kids. | How many grandchildren do I have?
I only touch decaf now. | What kind of coffee do I drink?
the interview people want me there half nine on monday | what time do i have to turn up about the job
My first crush was a boy with freckles, Anselm, from the bakery. | Who did I fall for when I was young?
I put my back out lifting a paving slab. | How did I get injured?
We buried Rex under the apple tree. | Where's our old dog's grave?
I handed in my notice on Friday, and it felt glorious. | When did I quit my job?
My hair went white overnight after the accident, I was only thirty. | At what age did I turn grey?
Grandfather came over from Kerry with nothing but a fiddle. | Which county are my ancestors from?
I've signed up to run the half in Cardiff. | What race have I entered, and where?
The surgeon I see for my eyes is a Mr Okafor. | Which doctor treats my vision?
I told Beth I'd knit her a blanket before winter. | What did I promise my friend I'd make?
I eat no meat, haven't since I was fifteen. | How long have I been a vegetarian?
My sister Colette has moved to a houseboat in Ghent. | Where does my sibling live now?
I feel the new mayor is a crook, plain and simple. | What's my opinion of the head of our town?
The lads at work all call me Sparrow. | What's my nickname among colleagues?
I cried my eyes out at that film with the old man and the balloons. | Which movie moved me to tears?
I always sleep with the window wide open, even in January. | What's my bedtime habit?
Sixteen stone two on the scales this morning. | What do I weigh?
I've put two hundred on Lucky Penny for the Grand National. | Which horse did I bet on?
my flat is number 12, right at the top, no lift | which floor do i live on
We adopted Jun when he was eight months old. | How young was our son on joining the family?
I'm the eldest of seven. | How many brothers and sisters do I have?
Ever since the stroke my left arm won't do as it's told. | Which limb is weak?
I do the books for a few small shops on the high street. | What's my profession?
I'd sooner die than sing in front of people. | What do I hate doing publicly?
The twins blow out their candles on Halloween. | When's my kids' birthday?
I've been learning Welsh on my phone, twenty minutes a night. | What language am I studying?
My ex got the house and I got the parrot. | What did I end up with after the divorce?
We bring our hives down from the heather in September. | Which insects do I keep?
Thieves had my bicycle from outside the library. | What was stolen from me?
I hid the kids' Christmas things in the tumble dryer. | Where did I put the presents?
The lump turned out to be nothing, thank God. | What was the result of my biopsy?
My boss, Mrs Halloran, is leaving us at Whitsun. | Who's the manager that is quitting?
I'm due under the knife for my hip on 14 March. | When's my operation?
I left school at fourteen to help on the farm. | When did my education end?
Dad was on the railways and we shifted every two years. | Why did I move so often as a child?
I wear a forty-one, and wide at that. | What's my shoe size?
Red makes me look like a boiled lobster so I stick to navy. | What colour do I usually dress in?
I popped the question at the top of Snowdon. | Where did I propose?
I got three points for doing 48 in a 40. | What was I fined for by the police?
The tablets for my blood pressure give me awful swollen ankles. | Which side effect do I suffer from my medicine?
I'd love to have my own little tea shop one day. | What business do I dream of opening?
Sundays we all pile round to Auntie Flo's for a roast. | With whom do we have lunch at the weekend?
My mate Kev still hasn't given me back that fifty quid. | Who owes me money?
i failed parking again, thats 4 times now | how often have i flunked my driving test
I've got a swallow inked on my ankle. | What tattoo do I have?
The nurse says I'm AB positive. | What's my blood type?
I stopped talking to Ingrid when she sold Mother's ring. | Why did I fall out with my sister?
I can hear sod all on the right since the explosion at the quarry. | In which ear am I deaf?
My grandson's got the cello and now I hear nothing but scraping. | Which instrument is the boy learning?
I did my nursing training in Cork. | Where did I qualify?
Every night before lights out I write three lines in a notebook. | When do I do my diary?
My lodger is a quiet chap from Eritrea, Yonas. | Who rents the room in my house?
We've booked the registry office for the 20th of June. | When am I getting married?
I've collected teapots for thirty years, the shelves are groaning. | What do I hoard?
My phone went down the loo on Tuesday. | What happened to my mobile?
Haven't touched a drop since my liver scare. | Why don't I take alcohol anymore?
I'm up at five to get the cows in. | How early do I rise?
The choir's put me with the altos. | Which voice part do I sing?
My stepson Leif is a guard on the Oslo trains. | What's my partner's boy employed as?
I've had it up to here with the commute, two hours each way. | How long does it take me to get to work?
Bruno chewed the legs off my nice dining chairs. | What furniture did the dog ruin?
We painted the nursery a sort of pale lemon. | What colour is the baby's room?
I went under the water in the River Jordan in '98, best day of my life. | Where was I baptised?
My cousin Dolores never paid for her own wedding, muggins here did. | Which relative's marriage celebration did I cover the cost of?
I'd take Dickens over any of this modern stuff. | Who's my favourite author?
Lost my wedding ring in the sea off Rhodes. | On which island did I misplace my jewellery?
My daughter's lad is down to play Joseph in the nativity. | What role does my grandson have at the school show?
"""
