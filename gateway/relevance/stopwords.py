"""Words that say nothing of what a text is about, in the languages most asked in."""

_ENGLISH = """
a an and are as at be been but by can could did do does for from had has have he her his how i if in into is it its me
my no not of on or our out she so than that the their them then there these they this those to up us was we were what
when where which who whom whose why will with would you your tell please give show s t d m ll re ve just also am being
im about any some does did doing should shall may might must let lets want need know get got going
"""
_OTHERS = """
der die das den dem des ein eine einen einem einer und oder ist sind war wie wer wo wann warum welche welcher welches
mit von zu im auf für bei nicht es sie
le la les un une des du et ou est sont qui que quoi où quand comment pourquoi quel quelle dans pour avec par sur
el los las una y o es son quién qué dónde cuándo cómo por para con del
и в во не на что как кто где когда какой какая какие с по из за от для это
في من على إلى عن ما هو هي هل التي الذي هذا هذه أن كان متى كيف أين
"""
STOPWORDS = frozenset(_ENGLISH.split()) | frozenset(_OTHERS.split())
