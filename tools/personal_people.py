"""What forty different people would ask of what was never told, and where they ask for advice; written by one
who had not seen the program (2026-11-25). Looked at, and learned from, since.
"""

NEVER_TOLD = """\
Which of my two brothers took the rowing boat after father's funeral?
how many years did I tend the light on Mykines before they automated it
Where did I put the brass telescope, the loft or the boathouse?
The name of the Danish inspector who once wrote me up, I can't get it back.
Did I ever say what I want carved on my headstone?
How many hives did I lose last winter?
who did i promise the two queens to
Remind me what year I marked with blue paint on my own queens.
What did the man from Bled pay me for the chestnut honey?
Am I still in debt to my neighbour Jože for the extractor, or did I settle it?
what ward was I on before pedia?
How much do I send to my mama every 15th?
Did my visa interview get moved, and if so, to when
my locker combi pls
Name of the patient who gave me the rosary?
where did i leave my board on saturday
what trick was I trying when I broke my wrist lol
Who owes me 40 reais, was it Thiago or his cousin
is my math makeup test this week or next, i told u
what size trucks did i say i wanted for my bday
What was the song Carol and I danced to at our wedding?
When is my appointment with Dr. Hensley again?
Which of the grandkids is allergic to walnuts?
I know I hid the deed to the house somewhere sensible. Where?
What did Carol's sister say to me at the hospital that upset me so?
How much is left on the loan for my three wheeler
Which tourist left the camera in my tuk tuk, what hotel he was staying?
what is my elder daughter's school admission number
Tell me what day I must give my cousin the lottery money back
Which colour did I decide for the new hood?
In which opera did I give the tenor the wrong cue, back in my first season?
Who has borrowed my annotated Rosenkavalier?
On which date did I hand in my notice?
What was the pet name my late aunt Hermine had for me?
Have I already cancelled the box at the Volksoper or not?
What street in Aleppo was our shop on?
Please what is the name of my case officer at Migrationsverket
How old was my son when we crossed to Lesbos?
I had a number for my uncle in Mersin. what was it
Which of my diplomas did I manage to bring and which ones stayed behind?
How many calves did we mark this summer?
what's the ear mark of my grandmother's herd, I want to be sure I described it to you correctly
Which of my dogs got bitten by the wolverine?
When did I say the snowmobile is due back from the workshop
Did I tell you who I quarrelled with at the slaughter corral?
who wis it that grassed me up in 2011
Whit date does my licence end?
What's the name of ma wee girl's new stepda
How many months have I been off the drink now?
the gaffer that gave me the start when naebody else would, what's his name
Which client on ulica Floriańska has the cracked soundboard I looked at?
What is my guide dog's real pedigree name?
At what age did I lose the sight in my left eye?
Read me back the list of pianos I have to do on Thursday.
To whom did I lend my best tuning lever?
How much is Mama Bisi owing me for the lace?
What did I say I will call the new shop o
Which of my sons promised to paint the gate and has not done it?
How many yards of ankara did I order from the Kano man
The pastor's wife collected something from me at Easter, what was it?
How long was I under on my longest patrol?
what did my wife write in the message I got at Christmas on board
The date I go back to sea, please.
Who did I name as the person to be told if anything happens to me?
Which flat in Recouvrance did we finally decide against?
What did my supervisor object to in chapter three of my thesis?
Where did I collect specimen 114?
whats the password hint i gave my herbarium laptop
When does my stipend run out?
Did I agree to share a room with Liis at the conference or did I get out of it?
Which of the triplets was born last?
Who had the fever yesterday, Haru or Sora?
how many ml did each of them drink at the 3am feed
What did I promise my mother in law about the shrine visit?
The lady from the ward office who's supposed to help me on Tuesdays. Her name?
Whats the unit number on my trailer
How many km were on my odometer when I left Moose Jaw
what did i tell my daughter id bring her from winnipeg
Which weigh station did I get the ticket at in March?
Did I pay off the Peterbilt yet?
What did I name the one eared goat?
Which cousin is to have my olive terrace when I am gone?
How many kilos of cheese did Manolis take away without paying me?
when did the vet from Sfakia last come up to us
My vow to the saint, when I had the pneumonia: what was it exactly?
In what year did I make my final vows?
What name did I have before I entered the convent?
Which child in my catechism class is it that has no shoes?
Could you tell me what Mother Superior forbade me last Lent?
Where is the key of the sacristy, I put it away myself
how many bones have i broken so far, full list
On which film did the harness snap on me?
Who was my body doubling for in Hyderabad?
What amount did the producer still not pay me yaar
Did I tell my parents about the burn or am I still hiding it?
Which opening did I forbid little Narek to play?
What was my highest rating ever?
Against whom did I lose my last tournament game, the one I ran away from?
what time is my thursday group now, after I changed it
How much did I take for a lesson before I raised my prices?
What did I ink on my own left shin first?
Name of the client who fainted on me last week
how much deposit did that Aussie couple leave with me for the back piece
When's my studio lease up
What did my nan tell me our family's river was?
How many years was I down at Tower?
what have the doctor said my lung score was, I had it wrote down
Who was my butty the day the roof came in?
Did I post the compensation form, bach, or is it by here somewhere?
What was my pony's name, the one underground?
How many embryos do we still have frozen?
What dose did the nurse put me on since Sunday?
Did I say whether my sister knows about the last miscarriage?
Which clinic did Amir and I leave because of the rude doctor?
The names we picked. Both of them, please
What weight was the biggest bell I ever cast?
Which parish refused my bell because it was a quarter tone flat?
To which apprentice have I promised the workshop?
what did I pay per kilo for my last load of tin
On what day are we pouring the Leuven bell, I moved it twice
What is my wife called?
Did I eat already today?
I had a job. What was it?
What did the neurologist tell me last time, in my own words
Where do I keep the notebook that my daughter gave me?
Which island did I lose the doves on?
Whats the name of the assistant I had before Petra
How does my own closing trick go, I wrote you the steps
Did I sign on for the Baltic season or turn it down?
how much did i win off the purser at cribbage
What did I name my flat bottomed boat?
How many pockets did I turn on Monday?
Which beds of mine did the inspectors close?
Who broke off the engagement, according to what I told you, me or Gwenaël?
what restaurant in rennes stopped ordering from me
Which courtroom am I in tomorrow morning?
In which trial did I break down in tears while interpreting?
How many languages did I say I speak at home, and with whom which one?
What did I swear I'd never translate again?
My late father's village near Kisii, give me its name
how much am I down since new year
What was the number I always bet on?
Who made me sign the self exclusion paper, my wife or my brother
Which pawn shop has my watch?
What did I swear to my daughter on her graduation day?
whats my hamsters name gonna be, i told you the one i picked
who am i not talking to at school and why
What did Granny give me for my communion?
what page am i on in my book
did i say what i wanna be for halloween or not yet
Which customer has not collected his badger?
When did I start the lynx?
What was the first animal I ever mounted?
What did I quote Frau Kessler for her dachshund
Is it paid, the freezer I bought from the butcher?
What's my best time over 2000 metres this season?
Which vertebra was it that I broke?
what did coach say about my seat in the boat on friday
Who was driving the night of my accident?
how many selection camps have I missed
What name is on my adoption papers from Busan?
Which of the two women I wrote to answered me?
How old was I when they told me I had a twin?
did i ever send in the second dna kit
The orphanage file number I found in Mom's desk, please
How many shotis puri do I bake on a Saturday?
Who gave me my sourdough mother, which auntie
What was it I shouted at the landlord?
When did the flour man say to me he would come again?
In which winter did my oven collapse?
What did Graciela keep in the divorce and what did I keep?
Which weekend do I have the boys?
Which lawyer did I fire?
what did i pay for the X ray machine in the end
My analyst's new address, I gave it to you on Monday or thereabouts
Babe what wig did I wear at Pride last year
who nicked my sequin gloves
What was my drag name before this one?
How much did that stingy club in Leeds give me for the Sunday slot?
Does my dad know about the act? Remind me what I've told him
How deep did I drill at the school before I found water?
In which village did we break the rig
How many wives does my partner Issoufou have now, I told you after the wedding
What did the chief promise me for the second well?
Who keeps my diesel receipts?
What focal length is my big refractor?
Which night did I see the fireball over my farm?
How many variable stars have I logged this year?
What did I say to the man who wanted to put floodlights next to my land
The guest who dropped my eyepiece. Where was he from?
what shade did I use on Madame Benali last time
Combien... sorry, how much rent do I pay for the chair?
Which of my girls asked for the Saturdays off?
What did I decide about the tooth my ex knocked out of me, crown or bridge?
When did my little one start to walk
Which leg did I lose?
What was the callsign of my best friend?
what model of knee did they fit me with in Lviv
Where was I when the mine went off?
The poem I made for Oleh. I would like to hear it again
"""

ADVICE = """\
My brother and I haven't spoken since the funeral. How does one begin again?
what can i do against the damp in my boathouse
Is it foolish of me to write my memoirs at eighty-three?
Why are my bees hanging in a clump outside the hive?
How do I get propolis off my good shirt?
I just came off a night shift and can't sleep, any tricks?
what should i say to my head nurse when she keeps giving me doubles
Do you think I would be happier working in Canada?
my wheels squeak like crazy after rain, what do i put on them
how do i ask a girl from my class to the movies without being weird
Can I skate with a cast on my arm?
I never learned to cook for one. What's an easy supper?
Is it too soon for me to give away my wife's clothes?
How do I stop the squirrels from emptying my bird feeder?
My engine smokes white in the morning, what can be the reason
how do I tell the tourist politely that he must pay before we go
My voice is gone by the third act even though I only whisper. What helps?
Please find me a nice phrase for my farewell card to the orchestra.
How can I make my Swedish sound less like a textbook?
Where can I look for lost family members through the Red Cross?
My son does not want to speak Arabic any more, what shall I do?
What's the best way for me to dry sinew for sewing?
my snowmobile wont start at minus 35, ideas?
Do I have to tell an employer about ma record?
how do I get tar aff my hands
I'm scared o heights all of a sudden and I'm a roofer. Is that a thing?
Which screen reader would you recommend for my new telephone?
My dog pulls whenever we pass a bakery. How do I break her of it?
How will I make my market stall attract young people?
My knees are paining me when I climb the stairs, what can I rub on it?
Write a small birthday prayer for my first grandchild
How do I explain to my kids why I'm away for ten weeks?
I get headaches the first days back in daylight, is that normal?
my supervisor hasnt replied in three weeks, how do i nudge him
Can you help me shorten my abstract? I don't know where to start.
Should I quit my doctorate or is everybody this miserable in the fourth year?
How do I bathe three babies on my own?
My husband says I never smile now. Could it be depression?
any stretches i can do in my cab for a stiff back
Recommend me a podcast for a long haul across the prairie
why does my coffee taste like metal from the thermos
What do I do about a goat of mine that eats only thorns?
Tell me something funny, it's raining on my mountain and I am alone
Which simple songs could I teach my little ones for the feast of the Virgin?
I find it hard to forgive a sister in my community. How might I try?
Can I put turmeric on my bruises?
how do i negotiate my fee when all the men get double
Is it normal that I feel nothing before a big fall?
How should I comfort a pupil of mine who cries after each defeat?
My eyes are tired from the board, which lamp would you take?
How do I turn down a face tattoo without losing my client?
do i need a new autoclave or can mine be serviced
I can't get my breath on the hill these days. Which inhalers are there?
How do I work this blasted tablet my grandson gave me?
What flowers would do well in my bit of garden up the valley, all clay it is
Why do the injections make me so weepy?
What can I answer people who keep asking when I'll have kids?
Is there any harm in me drinking one coffee a day during the two week wait?
Why do I get blowholes in my castings when the weather is humid?
How can I protect my hearing after forty years of noise?
What can I do to train my memory a bit?
I feel frightened this evening. Talk to me
How do I label my kitchen cupboards so that I find things?
my hands sweat and the cards stick, what do magicians use?
How do I cope with seasickness when I'm on stage?
Do you reckon I'm too old to learn escapology?
What's a good knife for opening my oysters when I have small hands
My oysters are milky in August, what's a way to sell them anyway?
How do I shake off what I hear in court when I go home?
Could you explain to me the difference between duress and coercion in plain Swahili?
how do I stop gambling when my whole street is casinos
My wife found the slips. What on earth do I tell her?
Are there meetings I could join without giving my name?
can u help me with my fractions pleaseee
my friends are being mean to me, what do i do
how do i get slime out of my hair
Which glue would you use for my glass eyes?
My neighbours complain of the smell from my workshop, how might I calm them?
How should I fuel before my morning erg session?
My blisters keep tearing open, what do I put on them?
Can I fly with my wheelchair in the hold, and what are my rights if it breaks?
How does a person like me start searching for a birth mother in Korea?
is it ok to be angry at my adoptive parents even tho they were good to me
Why does my bread stick to the wall of the tone and fall down?
I want to open a second bakery, is it madness in this economy?
What do divorced fathers do with two boys on a rainy Sunday?
I grind my teeth, I of all people. Which night guard is best?
Should I wait a while before I date again?
How do I stop my lashes peeling off halfway through the number?
think of three puns for my next bingo night love
What's the right way to come out to my old man?
My pump brings up sand, what is the cause?
How can I keep my drinking water cool in the desert without electricity?
Which filter should I buy for my telescope to see nebulae?
How do I keep the scorpions out of my observatory?
my client's hair turned green after the pool, help!!
What can I cook for my little girl, she refuses anything that isn't white
How long does phantom pain last, mine is driving me mad
I would like to dance at my sister's wedding with my prosthesis. How does one practise that?
What do I say to my friend's mother when I meet her?
"""
