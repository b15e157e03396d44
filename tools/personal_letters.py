"""Questions for what was never told, and facts asked for in other words, as somebody would type them; written by
one who had not seen the program (2026-11-25). Nothing is chosen on them.
"""

NEVER_TOLD = """\
What was the name of that little hotel where Piet proposed to me?
which shelf did i say the spare fuses are on
Do you recall who I lent my good umbrella to?
How many stitches did I get in my knee that summer?
Tell me again what my sister wanted for her fortieth.
when is my tooth thing. the crown i mean
Have I already paid Mrs Oduya for the curtains?
Who taught me how to drive?
whats my locker number at the pool
Remind me which of my cousins can't stand garlic.
Was I in favour of moving to Leeds or against it?
How long have me and Tariq been together now?
I forgot the name of my nephew's hamster, can you help?
Why did I stop talking to Renata?
where'd I put my passport
What did I decide to call the boat?
Is my appointment with the skin doctor before or after the wedding?
Did I ever tell you what my grandmother died of?
Which bus do I take to get to my mum's care home?
What's my shoe size, I told you when we talked about the hiking boots.
Please say me what is the name of my landlord.
how much do i owe dave
Who was it I promised the old piano to?
Remember the thing I'm allergic to? Which antibiotic was it?
What colour did we end up painting the hallway?
Am I supposed to pick up the twins on Thursdays or Fridays?
When did I last have my eyes tested?
Could you kindly remind me of the date on which my late husband and I were married?
what did i say i'd bring to the potluck
Where did my parents meet?
My boss at the bakery, what was her surname again?
Do I take the white pill in the morning or at night?
How old was I when we left Zagreb?
Tell me the name of the woman I sit next to in choir.
What was I so cross about last Tuesday?
Have I finished the third chapter of my novel or only the second?
which knee is my bad one
Who's watering my plants while I'm in Crete?
What's my daughter's teacher called?
Did I like the Thai place on our corner?
How many hens have I got left after the fox?
Can you remember what my dad used to call me when I was small?
Is it Monday or Wednesday I have Spanish?
i need the name of my plumber, the one i liked
What do I usually order at Gino's?
Where am I spending Christmas this year?
When does my lease run out?
Which of my tattoos did I say I regret?
What year did I buy the Volvo?
Do you still know what my first cat was called?
who gave me the blue vase
What weight was I when I started my diet in January?
Did I mention how Lena's exam went?
Why don't I eat at my brother's any more?
What was my score at bowling the other night?
How far did I run on Sunday?
the guy i met on the train, what was he called
Tell me what I said about the new vicar.
Was it Aunt Hetty or Aunt Joan who left me the ring?
Where in the garden did I bury the dog?
What time do I have to be at the clinic on the 9th?
Which gate code did I give you for my building?
Have I got any brothers?
What's the wifi password at my cabin?
How many sugars does my husband take?
I told you my ideal retirement plan once. What was it?
whose birthday did i nearly forget in march
What subject did I drop out of at uni?
Who do I ring if the boiler in my flat packs up?
Is my son-in-law from Porto or from Lisbon?
What was the dream I had about the lighthouse?
Did I say yes to babysitting on Saturday?
When was my operation?
which of the neighbours has our spare key
What did I get Marcus for our anniversary?
How tall is my youngest?
Can you tell me what I named my sourdough starter?
Where did I go to primary school?
my blood type?? i know i gave it to you
What's the title of the song we danced to at our wedding?
Am I a vegetarian or did I only try it for a month?
Who is going to be godfather to my baby?
What did the vet say about Biscuit's leg?
Do you know how many years I've been sober?
Why was I up till four last night?
What's the name of the village where my wife was born?
Which chapter am I on in that Russian book?
Remind me of the sum I agreed with the roofers.
did i book the ferry or was that still to do
How did I break my wrist?
What was that nickname we had for our maths teacher?
Who in my office is leaving in June?
When do I get my results back?
Where does my ex live now?
What was my excuse for missing Gill's party?
Do I prefer the aisle or the window, as I told you?
What instrument did I play as a kid?
How much did I say I'd put aside each month for the camper van?
Which day do my bins go out?
Tell me who I'm sharing the cottage with in August.
What was the make of my old sewing machine?
hey whats my gym buddy called again lol
Has my mother-in-law had her hip done yet?
What size are the windows in my kitchen?
Did I end up keeping the green coat or returning it?
Who won our family quiz at New Year?
What is my usual hairdresser's name, please?
For how long I am already living in Hamburg?
Where did I hide the kids' Easter presents?
What's the thing my therapist told me to write down every evening?
i said something about my uncle and the war, what was it
What did I do for work before I had the shop?
How many people did I invite to my sixtieth?
When did Grandad emigrate?
Which toe did I stub so badly?
What was my maiden name, did I ever tell you?
Who was my best friend in the army?
Is our new baby due in spring or in autumn?
Have I ever been to Japan?
What did I think of the film we saw with Colette?
Where's my car parked? I typed it in this morning.
What are the names of my goats?
My knitting pattern, how many rows had I done?
Why did my daughter change schools?
Do you happen to recall what I paid for the allotment shed?
What film makes me cry every single time?
Which neighbour do I suspect of stealing my parcels?
When's my flight to see Ana?
What's my bike lock combo, mate?
Was my great-grandfather a miller or a smith?
Who cut my hair before Simone?
What was wrong with the car I had in 2015?
How many times have I taken my driving test?
Did I tell you which name we picked for the girl?
What do I call my husband when nobody's around?
where do i keep the christmas lights
I can't think what I promised Olga. What was it?
How long did my physio want me to stay off the bike?
What's the brand of coffee I can't stand?
Who's picking me up from hospital on Friday?
Which university did my eldest choose in the end?
What did I swear I'd never do again after Magaluf?
When did my father retire?
What's my lucky number?
Do I have a middle name?
Where was I when I heard Mum had passed?
What's in the box I left at Jerome's?
How often do I have to give the rabbit his drops?
What was the reason I quit the tennis club?
Tell me my target for the spring half marathon.
Whom did I name as executor in my will?
What did Kofi say when I told him I was pregnant?
Did I put the deposit down on the caravan?
Which of my students made me laugh so much?
What's my staff number?
How many grandchildren have I, counting the new one?
what was the last thing i moaned about at work
Do you know what scares me most?
When do me and the girls go to Dublin?
Which stop do I get off at for my new job?
What was the nurse called who was so kind to me?
Who broke my mother's teapot?
How did Vikram and I get to know each other?
Am I left-handed?
What did I tell you was my favourite spot on the river?
My pension, from which year will I get it?
Where did I say the stopcock was in our house?
What was my grade in the accounting exam?
Which perfume did I wear on my wedding day?
Have I told Bettina about the baby yet?
What did I want to be when I grew up?
who did i vote for as chair of our book club
How many miles are on my van?
What was the last thing my gran knitted for me?
Did my insulin dose go up or down?
When did I say I'd hand in my notice?
Tell me which of my dogs is the deaf one.
Why do I hate the smell of lilies?
What time does Jasper finish nursery?
Where's my brother stationed?
What was the fine I got for speeding?
Which recipe of my aunt's did I want to try at the weekend?
Do you remember the joke name for our holiday house?
How's my back been, by what I've told you?
What was I going to ask the bank about?
Who sits behind me in the orchestra?
Did I say the meeting with my solicitor was at ten or at half past?
What does my wife do for a living?
How many nights did we book in Ghent?
what was that word my toddler keeps saying
In what street did I grow up?
When is the anniversary of my brother's accident?
Which medicine makes me dizzy?
Who owes me twenty quid?
What was the first record I ever bought?
My mother tongue, do you remember which it is?
What did I score the new sushi bar out of ten?
Where did I leave off with the tax papers?
How come I was not at Ingrid's funeral?
What did I say I would cook for Hanneke on her visit?
"""

IN_OTHER_WORDS = """\
I've been getting up at five ever since they put me on the early round at the post depot. | Who do I work for?
Our lad finally popped the question to Carys on the pier. | Which of my kids is engaged?
I can't go near peanuts, my throat swells right up. | What am I allergic to?
Mum's in Room 14 at Willow Court these days. | Where does my old mother live now?
We called the pup Dumpling. | What's the dog's name?
Me and Stefan split in November. | When did my relationship end?
I was brought up in a pit village outside Durham. | Where did I spend my childhood?
The surgeon is doing my cataract on the 17th. | What date is the eye operation?
I drive a battered yellow Fiat. | What car have I got?
I turned 52 last week and nobody noticed. | How old am I?
Fran and I share a desk at the council, she keeps me sane. | Which colleague do I get on with?
My telly packed up so I bought a Sony off Amir. | Who sold me the new TV?
I'm off the booze, been eleven months. | How long have I been sober?
The doctor says it's gout. | What's wrong with my foot?
Nothing beats a bowl of mum's pierogi for me. | What's my favourite food?
I can't bear coriander, tastes of soap. | Which herb do I dislike?
We're flying out to Madeira on the first of May. | Where am I going on holiday?
Our rent goes up to nine hundred from July. | What will my flat cost per month?
I sing alto with the Harbour Voices every Monday night. | What choir am I in?
Little Noor came into the world at half past three this morning, I'm a granny! | What's my grandchild called?
I bury my nose in crime novels whenever I get the chance. | What do I like to read?
My other half is a fireman. | What job does my husband do?
I came off my horse in 2009 and cracked two ribs. | What bones have I broken?
The spare key's under the frog by the back step. | How can someone get into my house when I'm away?
I'm petrified of moths. | What am I scared of?
Grandpa kept bees up on the moor. | What was my grandfather's hobby?
I handed in my notice on Friday, four weeks and I'm free. | Which day did I resign?
Lukas got a place to read medicine in Graz. | What is my son going to study?
Three more years of paying off the bank and then it's all ours. | When will I be rid of my mortgage?
I jog round the reservoir before breakfast. | Where do I go running?
We tied the knot in a registry office in Hull. | In what city did I get married?
My ginger tom weighs nearly eight kilos, he's a monster. | How heavy is the cat?
I'd love to see the northern lights before I die. | What's on my bucket list?
Dad passed when I was nine. | How old was I when I lost my father?
I wear a hearing aid on the right. | Which ear is my bad one?
The kids break up on the 19th of July. | When do the school holidays start for us?
I owe Babs sixty pounds for the concert. | Who do I have to pay back, and how much?
I'm knitting a bobble hat for Eli. | What am I making for my grandson Eli?
Took the train up to Inverness to see my pal Morag. | Where does my friend Morag live?
I spent six years behind the bar at the Plough. | What pub did I work in?
The builders promise they'll be done by Whitsun. | When will the extension be finished?
My sis is expecting again, in October. | When is my sister's baby due?
I never touch meat, haven't since I was a teen. | Am I vegetarian?
Someone nicked my Brompton from outside the library. | What got stolen from me?
I got a 2:1 in history from Kent. | What was my degree in?
The old boy next door, Mr Pettigrew, feeds my fish when I'm off. | Who looks after my aquarium when I travel?
I always nod off with the radio on. | What helps me fall asleep?
We lost the final three nil and I let in all of them. | What position do I play?
Ilse and I were at nursery together. | How do I know Ilse?
I keep my late nan's brooch in the biscuit tin. | Where's the family jewellery?
My alarm goes at ten to six. | What time do I wake up?
I have the snip booked for the tenth of March. | When is my vasectomy?
I've put nineteen grand away for a narrowboat. | How much have I saved up?
Chipping paint, draughts, damp, still I adore my top-floor place on Mercer Road. | What's my address?
I can't tell red from green. | What's my eyesight problem?
My brother's been inside since Easter for fraud. | Who in my family is in prison?
I do the accounts for a funeral parlour. | What's my occupation?
The lump turned out to be nothing, thank heavens. | Was my biopsy bad news?
Yusuf picked me up in his taxi and that was that, eleven years now. | How did I meet my partner?
I take mine black, two sugars. | How do I like my coffee?
I'm a lefty. | Which hand do I write with?
I came over from Manila in 1998 with one suitcase. | What country am I from originally?
Gemma is tying up loose ends, then she's off to Canada for good. | Who's emigrating?
I've two lads and a girl. | How many children do I have?
I chucked the sofa, Dan at the tip took it. | What did I throw away?
I'm up to the bit where the butler vanishes, page 212. | How far have I got in my book?
The lodger's moving out on the last day of the month. | When will the spare room be empty?
I'm reading up on Norse for an evening class. | Which language am I learning?
My folks ran a chippy in Whitby. | What did my parents do for a living?
I bawled my eyes out at Bambi, even at forty. | What film made me cry?
They found I've got sugar, type two. | What illness was I diagnosed with?
Winnie, my gran, was a codebreaker but never breathed a word. | What did my grandmother do in the war?
I've my heart set on lilac for the bathroom. | What colour will I paint the room with the tub?
I did my ankle in jumping off a wall at Jo's hen do. | How did I injure my leg?
My old headmaster, Mr Crabbe, caned me for whistling. | Why was I punished at school?
The Hendersons are having us over on Boxing Day. | Where are we invited after Christmas?
I can't abide jazz, it sets my teeth on edge. | Which music do I hate?
I've got till Friday week to send off the visa form. | What's my deadline for the travel paperwork?
I never learnt to swim. | Can I do front crawl?
Our hens give us five a day between them. | How many eggs do we get?
I went bald at twenty-five. | How old was I when my hair fell out?
I told Priya she could have my bunk bed. | Who did I promise some furniture to?
Up to my ears in it again, shipped my dissertation off on Tuesday though. | When did I submit my thesis?
Ours is the one with the turquoise door. | How can you recognise my house?
I bumped into Wes, my first sweetheart, at the chemist's. | Where did I run into my old flame?
The dentist took two out at the back. | How many teeth have I lost?
We've had to put Rusty down. | Which pet died?
I can't stop humming Fernando. | Which tune is stuck in my head?
I'm down for the nine fifteen slot with the midwife. | What time is my antenatal check?
Nobody but my twin calls me Bean. | What's my nickname?
I never missed a Sunday at the chapel on Tithe Street until my legs went. | Am I religious?
My mate Olu lets me crash on his couch till the flat's ready. | Who am I staying with at the moment?
I picked up a nasty scar on my chin from a swing. | What mark do I have on my face?
The tortoise is older than me, he was born in 1961. | What year is my reptile from?
I'm six foot four in my socks. | How tall am I?
The boss gave me another two pounds an hour. | How big was my pay rise?
I cross the bridge on foot to the office, takes me twenty minutes. | How do I get to work?
Ines talked me out of buying the motorbike. | Who persuaded me not to get a Harley?
Saturday evenings it's poker round at Frankie's. | What do I do at the weekend?
I spilt red wine all over Helga's white rug and I still feel dreadful. | What embarrassing thing happened to me at someone's home?
"""
