"""A question's words widened to those in which people answer it: who is asked for a pet tells of a puppy."""

from functools import cache

import numpy as np

from gateway.relevance.bm25 import K1, B, rarity
from gateway.relevance.corpus import Corpus, Scores
from gateway.relevance.term_ids import Numbers, numbers_of
from gateway.relevance.terms import Lexicon, Terms

# What people say when they speak of something: who tells of Rome calls it no city, who has a puppy says no pet.


_TABLE = """
city town | paris london rome milan venice berlin munich madrid barcelona amsterdam brussels vienna prague budapest
  warsaw dublin edinburgh lisbon athens istanbul moscow tokyo kyoto seoul beijing shanghai bangkok singapore delhi
  mumbai dubai cairo sydney melbourne toronto vancouver montreal boston chicago seattle miami denver austin dallas
  houston york angeles francisco diego vegas philadelphia portland atlanta orlando nashville detroit phoenix
  washington downtown
country nation abroad overseas | france england britain ireland scotland wales spain italy germany portugal greece
  sweden norway denmark finland iceland netherlands belgium austria switzerland poland hungary turkey russia ukraine
  china japan korea india pakistan thailand vietnam indonesia philippines australia zealand canada mexico cuba brazil
  argentina peru chile colombia egypt morocco kenya nigeria africa europe asia america usa uk
state province | california florida texas oregon colorado michigan ohio georgia arizona nevada alaska hawaii minnesota
  illinois indiana carolina virginia tennessee massachusetts maine vermont ontario
food eat meal dish cuisine snack diet cook recipe lunch dinner breakfast | cook bake recipe dish meal delicious tasty
  yummy flavor ingredient restaurant dinner lunch breakfast brunch snack pizza pasta sushi chicken beef pork fish
  seafood salmon shrimp salad soup stew sandwich burger taco curry rice noodle bread cheese egg steak roast grill bbq
  vegetable veggie fruit apple berry cake pie cookie muffin pastry brownie chocolate dessert
meat | chicken beef pork lamb turkey steak bacon ham sausage roast meatball
dessert sweet treat | cake pie cookie muffin pastry brownie chocolate cupcake pudding candy donut cream vanilla
drink beverage | coffee tea beer wine juice soda cocktail smoothie lemonade whiskey latte milk
restaurant cafe bar | dinner lunch brunch menu food coffee eat pub diner
animal pet | dog puppy pup cat kitten kitty turtle tortoise bird parrot fish rabbit bunny hamster snake lizard horse
  pony
dog | puppy pup canine
cat | kitten kitty feline
book read novel literature author | book novel story read author series chapter library trilogy memoir poem fiction
  fantasy mystery thriller
movie film cinema | movie film watch cinema theater actor actress director scene trilogy screen
show series television tv | episode season watch series
game gaming video play | game play player multiplayer level quest rpg console xbox playstation nintendo strategy chess
  puzzle board card
console | nintendo playstation xbox switch controller
music song band concert musician | music song band album concert guitar piano violin drum flute clarinet cello
  saxophone sing singer lyrics melody tune
instrument | guitar piano violin drum flute clarinet cello saxophone ukulele trumpet keyboard
sport athletic team | basketball soccer football tennis baseball golf swim hockey volleyball surf ski snowboard run
  rugby cricket box climb skate cycle marathon coach match league
exercise fitness workout gym | workout gym run jog yoga weight train swim hike cardio pilates lift stretch fit
health medical illness sick injury disease | doctor hospital sick ill pain injury hurt surgery weight diet diagnosis
  medicine medication therapy exercise fit allergy asthma flu cancer clinic symptom recover
allergy allergic | allergy allergic reaction asthma hives nut pollen gluten lactose
hobby activity pastime leisure interest | hobby hike paint draw read cook bake garden photography knit dance game camp
  fish climb bike swim craft yoga volunteer pottery
family relative sibling | mother mom mum dad father parent brother sister son daughter grandma grandmother grandpa
  grandfather uncle aunt cousin niece nephew wife husband kid child
parent | mother mom mum father dad
child kid | son daughter kid child baby toddler
partner relationship spouse romantic marry date girlfriend boyfriend | girlfriend boyfriend gf bf wife husband fiance
  date marry married engaged wedding partner relationship breakup love
girlfriend | gf
boyfriend | bf
friend | buddy pal mate friendship
job career work profession occupation employment employer | job work career boss company office hire interview
  promotion manager engineer teacher nurse lawyer analyst accountant designer quit fired colleague coworker internship
  salary business
business company startup store shop | business store shop brand customer client startup launch investor entrepreneur
  sell product
promote advertise market | advertise marketing campaign ad offer promotion discount flyer website social media
school education degree study university college student | school college university class course degree student
  teacher graduate graduation exam major diploma scholarship study professor homework
class course lesson workshop | class course lesson workshop seminar training learn taught teach
travel trip visit vacation journey tour | trip travel visit flight fly airport hotel tour vacation holiday abroad
  explore drive drove sightseeing
place location spot | park city beach mountain restaurant museum cafe lake town shop garden
nature outdoor hike camp | park forest hike mountain lake beach trail camp tent wood river waterfall sunset wildlife
  scenery
art paint draw artist | paint draw sculpture gallery sketch canvas watercolor exhibit exhibition mural artist
event | festival concert conference fair tournament party parade exhibition competition ceremony convention meetup
  fundraiser workshop opening
competition contest tournament compete championship | win won tournament contest competition prize trophy medal
  champion final place compete
clothes clothing fashion wear outfit | shirt dress hoodie jacket shoe hat jeans skirt sweater outfit fashion coat suit
  boots
buy purchase bought shopping | bought got purchase order store shop pick new
gift present | gave gift birthday surprise necklace
charity volunteer donate fundraiser organization cause | charity donate donation raise fundraiser volunteer shelter
  homeless hospital community cause nonprofit foundation
feel emotion mood | happy sad proud excited nervous anxious grateful scared angry upset calm joy frustrated
  overwhelmed lonely
stress relax calm cope | relax calm stress peace yoga meditation unwind soothing therapeutic
problem challenge difficulty struggle setback obstacle | tough hard struggle setback difficult problem challenge lost
  issue
house live apartment move | apartment house rent move neighborhood roommate room
car vehicle | drive car truck van motorcycle bike engine garage
garden plant flower | flower plant garden grow rose tulip vegetable seed
technology computer device software | computer laptop phone tablet app code program software website robot
holiday celebrate celebration | christmas thanksgiving halloween easter birthday anniversary party
language | french spanish german italian chinese japanese korean russian arabic english
religion faith spiritual | church god pray prayer faith religious christian bible temple mosque
politics government | election vote campaign office policy mayor
military | army veteran soldier navy
money finance cost price afford | money pay dollar salary rent budget loan bank expensive cheap
weather | rain snow sunny storm cold hot wind
sea ocean beach | beach ocean sea sand wave surf
name nickname | name named call called nickname
color | red blue green yellow purple pink orange black white brown
start begin launch | start began begin launch open join new
finish complete end | finish complete done end
reject rejection | reject rejection declined refused
learn skill | learn taught teach skill train lesson
inspire inspiration motivate motivation | inspire inspiration motivate motivation idea imagine
goal dream plan aspire future ambition | goal dream plan hope want someday future
award achievement accomplishment success | award won win prize trophy proud achievement milestone
write writer script screenplay | write wrote script screenplay novel poem story blog journal draft
photo picture image | photo picture pic
memory childhood | remember childhood memory kid grew young
support help | support help encourage
personality trait character | kind thoughtful caring brave creative passionate honest funny
age | birthday year old born
favorite prefer | favorite love best prefer enjoy fan
fear afraid phobia | fear afraid scared terrified phobia
look appearance | hair eye tall beard tattoo glasses dyed
adopt rescue | adopt rescue shelter got new
breakup divorce | breakup broke divorce split separate ex
pregnant birth | pregnant baby birth born newborn due
death die loss grief | died passed funeral miss lost grief memory
accident crash | accident crash hit hurt fell broke hospital
repair fix | fix broke repair restore mechanic replace
craft create build | made built create craft diy handmade
hometown origin root | born grew raised moved hometown
commute transport | bus train subway drive bike walk traffic
recommend suggest advice advise | recommend suggest try advice tip check
meeting appointment schedule | meeting call appointment schedule calendar monday tuesday wednesday thursday friday
deadline | due deadline until before
bug error failure fail | error exception crash bug fail broken stack trace timeout
deploy release rollout | deploy release ship rollout version production staging
database | table query schema sql postgres mysql sqlite index migration
server host | server host instance port cluster machine
password credential login | password login token secret key credential account
contact address phone email | phone email address contact number call
sleep tired | sleep slept tired nap bed insomnia exhausted
neighbor community | neighbor neighborhood community street block
season | spring summer autumn fall winter
"""
LINE = "|"


@cache
def topics() -> dict[int, Numbers]:
    """By the number of a term that names a topic, the numbers of the terms that speak of it (sorted)."""
    lexicon = Lexicon()
    found: dict[int, set[int]] = {}
    for line in _TABLE.replace("\n  ", " ").strip().splitlines():
        heads, members = (lexicon.question(side) for side in line.split(LINE))
        numbers = numbers_of(members)
        for number in numbers_of(heads).tolist():
            found.setdefault(number, set()).update(numbers.tolist())
    return {head: np.array(sorted(members), np.int64) for head, members in found.items()}


def widened(corpus: Corpus, question: Terms) -> Scores | None:
    """What turns of a talk score by the topics that the question names: all words of a topic together are as one term
    (BM25), for it is one thing that they speak of. None if there is no talk, or nothing in it of such a topic.

    Only for talk: records name what they hold by fields, and in a document the topic's own name stands in the text.
    """
    talk = np.array([source.kind == "turn" for source in corpus.sources], bool)
    asked = numbers_of(question)
    wide = topics()
    groups = [np.setdiff1d(wide[n], asked) for n in dict.fromkeys(asked.tolist()) if n in wide]
    if not groups or not talk.any():
        return None
    wanted = np.unique(np.concatenate(groups))
    hits = corpus.find(wanted)
    of_talk = talk[corpus.source_of]
    count = int(of_talk.sum())
    length = np.maximum(1, corpus.lengths / max(1.0, float(corpus.lengths[of_talk].mean())))
    scores = np.zeros(corpus.count)
    for group in groups:
        counts = np.where(of_talk, _counts(corpus.count, hits.chunks[np.isin(hits.terms, _places(wanted, group))]), 0)
        worth = float(rarity((counts > 0).sum(keepdims=True), count)[0])
        scores += worth * counts * (K1 + 1) / (counts + K1 * (1 - B + B * length))
    return scores if scores.any() else None


def _places(wanted: Numbers, group: Numbers) -> Numbers:
    found: Numbers = np.searchsorted(wanted, group)
    return found


def _counts(count: int, chunks: Numbers) -> Scores:
    return np.bincount(chunks, minlength=count).astype(np.float64)
