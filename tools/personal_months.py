"""Questions for what was never told, and facts asked for in other words, as somebody would type them who has
chatted for months; written by one who had not seen the program (2026-11-25). Looked at, and
learned from, since.
"""

NEVER_TOLD = """\
What did I say my blood type was?
where do i keep the spare key again
Who was it that introduced me to my husband?
When's my dentist appointment?
Which of my aunts used to run the bakery?
How many godchildren have I got?
How long have I been at the council now?
Why did I stop talking to my brother?
Do I take sugar in my coffee?
Did I ever tell you the name of my first boss?
Have I been to Lisbon before?
Was I a breech baby? I'm sure I mentioned it.
Is my passport still valid?
Tell me what I named the new kitten.
remind me what size shoes my son wears
Do you remember the colour I painted the hallway?
Can you recall which hospital my mother was in last spring?
I forgot the name of my physio, what was it?
Where does Milo live these days?
what was my locker number at the gym
How old was I when my parents split up?
Whose wedding am I going to in September?
what's my mum allergic to
Who did I lend my tent to?
At what age did my grandmother come over from Poland?
Right, so which day is bin day on our street?
Gimme my licence plate, I'm at the parking machine.
Please, what is the name of my landlord?
I had told you the birthday of my niece, no? When is it?
my cousin in Bristol, what does she do for work again?
Which knee was it that I had operated on?
How much rent do I pay?
Would you be so kind as to tell me the name of my late husband's regiment?
what did i promise to bring to the potluck
How does my father like his eggs?
Whereabouts did I lose my wedding ring?
Did I already book the train to Leeds?
What's my daughter's teacher called?
yo what was that band i said i saw live when i was 16
Am I supposed to be off dairy or off gluten?
Who's picking the kids up on Thursday?
Who gave me the blue vase on my windowsill?
What am I calling my novel?
Remind me why I left the bank.
how many stitches did i get
Which flat did we live in before this one, number 12 or number 21?
What does Priya study?
When did I last have my eyes tested?
Was it my left ear or my right ear that I can't hear out of?
Have I told you what my ex is called?
Say, what was the nickname my grandpa gave me?
Do I own a drill?
I can't think what I got Dad for his seventieth. You know?
What is the name of the village where I was born?
Did I mention which of my neighbours has the noisy parrot?
how far did i run on sunday
Where did I stash the Christmas presents?
What's the thing I'm most scared of?
On which floor is my office?
What make was my very first car?
who taught me to knit
Which medication did the doctor put me on in March?
How come I don't eat mushrooms?
Do you know my middle name?
Can you tell me what my starting salary was at the shop?
When is Oscar's vet check?
What did I decide about the job in Denver?
I've gone blank, who's my emergency contact?
name of my kids' swim coach?
What was I going to ask my solicitor?
Where have I left the receipt for the washing machine?
For how many years I was living in Germany?
What do I usually order at the Thai place?
Has Chloe had her baby yet?
What instrument did I play in school?
so what was my score on the driving theory test lol
Which side of the bed do I sleep on?
Is my boss a man or a woman?
tell me my mother in law's address
Who cuts my hair?
What time does my shift begin tomorrow?
Does Gemma eat meat?
What did I think of the film I saw on Friday?
How did my granddad lose his finger?
What was the maiden name of my mother?
My old dog, the one before this one, what breed was he?
Did I say yes to the barbecue at the Hendersons'?
which credit card did i cancel
When am I due?
How many plants did I kill last year? I told you, I know I did.
I wonder if you still have the name of my choir.
What year did we buy this house?
Where do my in-laws spend the winter?
Who among my friends is the one with diabetes?
What's my PB for the 10k?
What's the wifi password at my gran's?
Am I the oldest or the middle child?
Kindly remind me of the date of my cataract operation.
Was my surgeon called Mr Patel or Mr Pandit?
What is it that Theo collects?
what pizza topping did i say i hate
How tall is my eldest?
Which perfume do I wear?
Have I ever broken a bone?
Did I pay the plumber?
What does my tattoo say?
Where was my husband stationed when we met?
u remember what i wanted for my bday??
With whom did I share a room at university?
What were my twins' birth weights?
In what month is our wedding anniversary?
Who sits next to me at work?
What did my therapist tell me to do every morning?
How much have I saved for the motorbike so far?
My tomato plants, where did I put them this year?
Do I have any siblings?
What are the names of my hens?
what platform does my train home go from
Which language did my nan speak at home?
Is Bertie the cat or the dog?
Tell me again how I met Sandra.
When do I have to hand in my thesis?
Whom did I vote for as head of the parents' committee?
What was the worst holiday I ever had?
What did I drop on my foot last winter?
i told u my bra size once, what was it
Which of my kids is left-handed?
What's the name of the street I grew up on?
How long was I in labour with my second?
Did I ever finish that quilt?
What do they call me at work?
Please to tell me, in which bank I have my account?
Why can't I see my dad on Mondays?
What was my dream about last night?
Where am I flying to in November?
When does Luca come home from the army?
Does Stuart still smoke?
I need the number of my allotment plot.
What is my mate Dave's missus called?
What song did we dance to first at our wedding?
How many cups of tea did I say I get through in a day?
Do you happen to recall what my late wife's favourite flower was?
which tooth is it thats killing me
What did my mother leave me in her will?
Who looks after my cat when I'm away?
What was on my shopping list?
Which subject did I fail at school?
What's Hannah's fiancé called?
How many times have I moved house?
What am I giving up for Lent this year?
Did I get the results of my biopsy?
what was the hotel we stayed at for our honeymoon
Where did my grandfather work all his life?
Has the boiler man been to mine yet?
My blood pressure this morning, what was it?
Which team does my son play for?
Who made my wedding dress?
What do I drive?
Remind me, what's my goal weight?
What's the name of the lady from my church who broke her hip?
When was I last in hospital?
Do I like my new manager?
Could you tell me which room of our house we are renovating?
What was it that Ruth said to me at the funeral?
what do i keep under the sink in the blue tin
How did I get the scar on my chin?
Which book is my reading group doing next?
What's my ring size?
And my nephew, what's he called, the one in the navy?
Where did I go to primary school?
What was my New Year's resolution?
Did I tell you how my interview went?
How often does my mum get her injections?
who owes me money
What's the code for the gate at my building?
Until what date is my visa?
What colour are my baby's eyes?
Who is my oldest friend?
How many brothers had my father?
Which seat have I got for the concert?
Is Amir older than me?
What did I plant by the back fence?
I know I told you my Secret Santa. Who've I got?
What's my stepdad's line of work?
What do I call my car?
Has Jonas found a flat?
When did I quit drinking?
What was our house called, the one by the sea?
how many miles has my van got on it
To which saint is my parish dedicated? I spoke of it at Easter.
What did I have for lunch yesterday?
Who in my family had red hair?
Where's Nana Jean buried?
What time do I give Pepper her tablet?
What's my reference number with the insurance?
Did my flatmate move out in the end?
Which cake does Freya want for her party?
What was I knitting when we last spoke?
What's keeping my husband in Aberdeen?
Where'd I park this morning?
"""

IN_OTHER_WORDS = """\
I can't touch prawns, my throat closes up | What food am I allergic to?
Our Kevin drives the 42 through town now, loves it | What job does my son have?
I was on my feet in the ward from eight last night till this morning | Do I work nights?
We've got the keys to the cottage in Whitby at last | Where is my new home?
My old man passed when I was eleven | How young was I when I lost Dad?
I can't be doing with coriander, tastes of soap | Which herb do I hate?
Biscuit chewed the leg off the sofa again, he's only five months | How old is my puppy?
I blow out forty candles on the third of May | When is my birthday?
Martin and I tied the knot in a tiny chapel in Skye | Where did I get married?
The missus is expecting, end of October they reckon | When is our baby due?
I went through three pairs of trainers getting ready for the London marathon | What race did I train for?
Took the bus every day since they took my licence off me | Why don't I drive?
I sold my grandmother's piano to pay for the roof | How did I afford the repairs upstairs?
My Spanish teacher is a bloke called Ignacio | Who gives me language lessons?
I've been off the booze since the second of January | When did I stop drinking?
Can't sleep a wink unless the window is wide open | What do I need in order to nod off at night?
I put a tenner a week in the jar for a trip to see the northern lights | What am I saving up for?
Every Tuesday I'm at the hall with my tap shoes on | On which day do I go dancing?
My specs are minus six, I'm blind as a bat | How bad is my eyesight?
Mum grew up on a farm outside Cork | Which country does my mother come from?
I finally handed in my notice at the call centre | What job did I quit?
Sophie got the place at Edinburgh to do medicine | What will my daughter be studying?
I came off my bike and now my wrist is in plaster | Which part of my body did I break?
We named her after my gran, so she's Winifred | What is our little girl called?
Uncle Stan left me his stamp albums | What did I inherit?
The bairns go to their dad's every other weekend | How often do the children stay with my ex?
I've been round to feed the goldfish while next door are in Tenerife | Whose pets am I minding?
Honestly I'd live on lasagne if they let me | What's my favourite dish?
My knees go funny when I'm up a ladder | Am I scared of heights?
I'm the only one in our house who follows Everton | Which football club do I support?
My brother's been behind bars since last summer | Which of my relatives is in prison?
They whipped my appendix out when I was nine | What operation did I have as a child?
I teach little ones to read and count at St Anne's | What do I do for a living?
Dropped my phone down the loo on Saturday, it's had it | How did my mobile get broken?
We hitched all round Greece the summer I left school | How did I travel after finishing my exams?
Harriet from number nine has my hedge trimmer | Who borrowed my garden tool?
I hid the Christmas bits up in the loft behind the suitcases | Where are the festive decorations stored?
I get a jab in my belly twice a day for my sugar | What illness do I have?
The cat showed up one night in the rain and never left | How did I come by my moggy?
I'm meeting the girls for a curry on Friday | What are my plans for the end of the week?
It's a hundred and twenty steps to my front door and no lift | Is my flat easy to reach?
My car's a little yellow Fiat | What vehicle do I own?
I've got twelve thousand still to pay back from uni | How much is my student debt?
Left school at fifteen to help Dad on the boats | Why did I never finish my education?
My sister hasn't spoken to me since the will was read | Who in the family fell out with me?
I swear by a cold shower first thing | What's my morning habit?
Grandad painted signs for pubs all his days | What was my grandfather's trade?
We say grace in Welsh at home | Which language is spoken at our table?
The doc says no more bacon and butter, my cholesterol's through the roof | What am I not allowed to eat?
I've signed up to sing alto in the Messiah | Which voice part do I have in the choir?
I collect old biscuit tins, have sixty odd | What's my hobby?
Ben proposed at the top of the Eiffel Tower | Where did I get engaged?
I've never in my life been on a plane | Have I flown before?
Lucy and Tom are five minutes apart | Which of my kids are twins?
I used to be a redhead before it all went white | What was my natural hair colour?
My manager is called Denise and she never smiles | Who do I report to at work?
The lad next door plays drums till midnight | What keeps me awake?
I've one of those electronic gadgets in my chest to keep my ticker going | Do I have a pacemaker?
I do forty lengths before breakfast at the leisure centre | How far do I usually swim?
Last June we lost our old collie, buried her under the apple tree | Where is the dog's grave?
I'm reading Middlemarch for the third time | What book have I got on the go?
My eldest is stuck in Sydney on a working visa till Christmas | Which city is my son living in?
I promised Auntie Bev I'd do her curtains | What did I say I would sew?
It was Mr Carver who got me hooked on chemistry | Which teacher inspired me?
The little one won't drift off without his stuffed rabbit | What's my toddler's comfort toy?
We moved here from Manila when I was six | Where was I born?
I stick my savings with the Nationwide | Which bank do I use?
My feet are huge, I buy men's nines | What shoe size do I take?
I'm off to have my wisdom teeth out on the fourteenth | When do I see the dental surgeon?
Spent the whole weekend putting up a greenhouse | What did I build lately?
My phone contract is up in August | When can I switch mobile provider?
Raj is vegan so he brings his own lunch to ours | Which friend doesn't eat meat or dairy?
I got a B in maths and cried for days | Which school grade upset me?
I can't stand clowns, they give me the willies | What am I frightened of?
We named the boat Second Wind | What is painted on the side of my sailing vessel?
I had a go at being a nun for two years | Was I ever in a convent?
The in-laws descend on us Sunday at noon | When are my husband's parents visiting?
I'd sooner have a cuppa than coffee any day | What's my favourite hot drink?
Pauline has a key to my place, just in case | Who could let me in if I'm locked out?
I was stood up at the registry office by a chap called Lionel | Who jilted me?
They've moved me to the Croydon branch starting Monday | What's the location of my new workplace?
I sneeze my head off whenever the birches bloom | What pollen gives me hay fever?
My better half snores like a tractor | Who makes a racket in our bedroom?
I got a fine for doing fifty in a thirty | What was my speeding ticket for?
Had my nose pierced on a dare in Blackpool | Which piercing do I have?
Every night I jot down three nice things in a notebook | Do I keep a diary?
I'm paying four hundred a month for childminding | What does nursery cost me?
Dad was a postman till his back gave out | Why did my father retire?
My flight gets in to Faro at half ten | What time do I land in Portugal?
I want lilac all over the bathroom walls | What colour am I going to paint the room with the tub?
There's just me and the tortoise at home | What kind of pet have I got?
I'm entering my marrow in the village show | Which vegetable am I hoping to win a prize with?
Nobody calls me Elizabeth, it's always been Bunty | What's my nickname?
I lost two stone on that soup diet | How much weight did I shed?
We sat in row F for Les Mis and I bawled | Which musical made me weep?
My mate Carol fixed me up with Pete at a bowling night | Who got me and my husband together?
I've got a standing order with Guide Dogs, a fiver a month | Which charity do I donate to?
The hip gets done at Leeds General | Where am I having my joint replaced?
We only ever have a real tree, the needles don't bother me | Do I prefer an artificial Christmas pine?
My parrot picked up swearing from the builders | Where did my bird learn bad language?
"""
