"""The words and sentence patterns that the pages of `site.py` are made of."""

SECTIONS = (
    'getting-started guides reference concepts tutorials operations security release-notes'
    ' integrations examples troubleshooting community'
).split()
NOUNS = (
    'account answer archive batch branch browser buffer cache channel checkpoint client clock'
    ' cluster column command commit connection contract counter cursor database deadline default'
    ' deployment directory document endpoint engine event example failure field file filter folder'
    ' function gateway handler header history host index instance interface job journal key label'
    ' lease library limit line link list lock machine manual measure member memory message method'
    ' migration mirror module monitor network node notice number object operator option order'
    ' owner package page parameter partition password pattern payload permission pipeline policy'
    ' pool port process profile program project protocol query queue range record region release'
    ' replica report request resource response result role route row rule runner scheduler schema'
    ' script secret section segment server service session setting shard signal snapshot socket'
    ' source standard state step storage stream string subject supervisor switch system table tag'
    ' target task template tenant test thread ticket timeout token topic trace transaction trigger'
    ' tunnel upgrade user value variable version view volume warning window worker zone'
).split()
VERBS = (
    'accepts adds allows answers applies arrives begins belongs breaks builds calls carries'
    ' changes checks claims closes collects compares completes connects contains continues copies'
    ' counts covers creates decides delivers depends describes drops emits ends enters expects'
    ' expires explains fails fetches fills finds follows grows handles holds ignores keeps knows'
    ' leaves limits lists loads locks matches means moves names needs notices opens orders passes'
    ' pauses points prevents prints protects publishes reads receives records refuses releases'
    ' removes renames repeats replaces reports resolves restarts returns runs saves sees sends'
    ' serves shows sorts splits starts stays stops stores survives takes tells tries updates uses'
    ' waits watches works writes'
).split()
ADJECTIVES = (
    'active available bounded broken careful cheap clean complete concurrent consistent current'
    ' deep different durable early empty entire exact external fast final first fresh full general'
    ' hidden idle important internal large late lazy local long manual missing narrow new next old'
    ' open optional ordinary other parallel partial pending plain possible previous private public'
    ' quiet random rare readable recent regular remote safe same second separate serial shared'
    ' short silent similar simple single slow small special stable stale strict sudden temporary'
    ' unknown unused useful usual valid visible whole wide wrong'
).split()
ADVERBS = (
    'again,always,at once,before long,by default,by hand,in order,later,mostly,often,once,rarely,'
    'seldom,sometimes,soon,usually,without delay'
).split(',')
SHAPES = (
    'The {a} {n} {v} the {n}, and the {n} {v} {d}.',
    'When a {n} {v}, the {a} {n} {v} its {n} and {v} the {n} of the {a} {n}.',
    'It is {a} to know that each {n} {v} at most {i} {n}s before the {n} {v}.',
    'If the {n} is {a}, it {v} nothing; otherwise the {n} {v} {d}, with a {a} {n}.',
    'A {n} that {v} {d} is not the same as a {n} which {v} a {a} {n}.',
    'Since version {i}.{j} the {n} {v} {n}s in {a} order.',
    'Most {n}s need no {n}: the {a} one {v} after {i} seconds, and the {n} {v} it from there.',
    'There are {j} ways to see it, but only the {a} {n} {v} what the {n} has written.',
    'To change this, set the {n} of the {n} to {i}, or let the {a} {n} decide.',
    'This {v} even where the {n} and its {n} {v} in different {n}s.',
    'Do not confuse it with the {n} of a {a} {n}, which {v} {d} and {v} every {n}.',
    'In practice, {j} of {i} {n}s were {a}, because their {n} {v} the {n} too late.',
)
KEYWORDS = 'if for while return with async def class import from yield assert'.split()
OUTSIDE = (
    'https://www.rfc-editor.org/rfc/rfc{i}',
    'https://en.wikipedia.org/wiki/{N}_{n}',
    'https://github.com/{n}-{n}/{n}/issues/{i}',
    'https://{n}.example.org/{a}/{n}.html',
    'https://docs.{n}{n}.example.com/{j}.{j}/{n}',
    'https://www.{a}{n}.example.net/',
)
