"""How the facts that a paraphrase must not lose are written: one pattern for each kind. Pure.

Text is hostile, so each pattern takes linear time: it can only start where a run starts (the look-behinds), and it is
either bounded or does not give back what it has taken (the possessive quantifiers).
"""

import re
from typing import Final

# Letters and digits that make up words in Latin, Greek and Cyrillic. Chinese, Japanese and Thai put no blank between
# a word and an id, so their characters end one.
_LETTER: Final = "A-Za-zÀ-ÖØ-öø-ɏͰ-ӿ"
_AN: Final = "0-9" + _LETTER
_W: Final = _AN + "_"
_START: Final = f"(?<![{_W}])"
_END: Final = f"(?![{_W}])"
# A number does not start in the middle of another one. To look for the digit first takes a third of the time.
_NUMBER_START: Final = f"(?=[0-9]){_START}(?<![0-9][.,:/-])"
_NUMBER: Final = (
    "(?:[0-9]{1,3}(?:[,.'’\u00a0\u202f][0-9]{3}){1,6}+(?![0-9])(?:[.,][0-9]{1,9}+)?|[0-9]{1,18}+(?:[.,][0-9]{1,9}+)?)"
)
_GAP: Final = "[ \u00a0\u202f-]?"

_MONTH: Final = (
    "(?=[JFMASONDjfmasond])(?i:January|February|March|April|May|June|July|August|September|October|November|December"
    "|Januar|Februar|März|Mai|Juni|Juli|Oktober|Dezember|(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Okt|Nov|De[cz])[.]?)"
)
_DAY: Final = "(?:0?[1-9]|[12][0-9]|3[01])"
_ORDINAL: Final = "(?:st|nd|rd|th)?+"
_YEAR: Final = "(?:19|20)[0-9]{2}"
_ZONE: Final = f"(?: ?(?:Z|UTC|GMT|[ECMP][SD]?T|CES?T|BST|[+-][0-9]{{2}}:?[0-9]{{2}}){_END})?"
_CLOCK: Final = "(?:[01]?[0-9]|2[0-4]):[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]{1,9}+)?)?+(?![0-9:])"
_HALF_DAY: Final = f"(?i:[ap](?:[.]m[.]|m{_END}))"

_CURRENCY: Final = (
    "(?=[A-Zced])(?:USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|BTC|ETH|[Ee]uros?|[Dd]ollars?|[Cc]ents?)"
)
_SCALE: Final = f"(?: ?(?:k|K|m|M|bn|million|billion|Mio[.]?|Mrd[.]?){_END})?"
_UNITS: Final = (
    "(?=[A-Za-zµμ])(?:[kKMGTP]i?[Bb](?:ps|/s)?|[KMGT]?bit/s|bytes?"
    "|[nµμmck]?m[²³]?|miles?|(?:kilo|centi|milli)?met(?:er|re)s?|inch(?:es)?|ft|feet|yards?|km/h|mph"
    "|[kmµμ]?g|kilos?|tons?|tonnes?|lbs?|oz|pounds?|ounces?|[mc]?[lL]|lit(?:er|re)s?|gallons?"
    "|[nµμm]?s|secs?|(?:milli|micro|nano)?seconds?|mins?|minutes?|hrs?|h|hours?|days?|nights?|weeks?|months?|years?"
    "|Sekunden?|Minuten?|Stunden?|Tage?n?|Wochen?|Monate?n?|Jahre?n?|Uhr"
    "|[kMG]?Wh?|[kMG]?Hz|m?V|mAh?|px|pt|rpm|fps|dpi|tokens?)"
)

_PATH: Final = f"[{_W}.@+~%-]"
_LINE: Final = f"(?::[0-9]{{1,6}}{_END})?"
_EXTENSIONS: Final = (
    "(?:py|pyi|ipynb|js|mjs|cjs|ts|tsx|jsx|vue|svelte|go|rs|rb|php|java|kt|swift|scala|cs|cpp|cc|c|h|hpp|m|r|pl|lua|sh"
    "|bash|zsh|ps1|bat|sql|html?|css|scss|less|xml|xsd|json|jsonl|ya?ml|toml|ini|cfg|conf|env|lock|md|rst|txt|log|csv"
    "|tsv|parquet|pdf|docx?|xlsx?|pptx?|odt|png|jpe?g|gif|svg|webp|mp[34]|wav|mov|zip|tar|t?gz|bz2|xz|7z|whl|jar|exe"
    "|dll|so|db|sqlite|pem|crt|key|tf|proto|patch|diff|bak|tex|ics|eml)"
)

# What names an id, and is followed by it; such an id may be all letters, if they are capitals.
_NAMED: Final = (
    f"(?=[RBCOTIPrbcotip]){_START}(?i:reservation|booking|confirmation|order|ticket|reference|tracking|invoice|code|pnr|id)"
    "(?i: (?:id|code|number|locator|no[.]?))?+(?i: is| was)?+[ :=\"'*`#(]{1,4}+"
)

# Of matches that overlap, the longest stands, so the order says nothing. A group ``fact`` is the fact, where
# the match holds more than that.
PATTERNS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        # URLs and e-mail addresses
        r"(?<![0-9A-Za-z])[A-Za-z][A-Za-z0-9+.-]{1,20}+://[^\s<>\"'`\\，。、；：！？（）【】「」『』《》“”‘’]++",
        f"(?<![{_W}.+%@-])[{_W}.+%-]{{1,64}}+@(?:[{_AN}-]{{1,63}}+[.]){{1,8}}[{_LETTER}]{{2,24}}{_END}",
        # paths: from a root, from a folder with an extension at the end, of a file of a known kind, of Windows
        rf"(?<![{_W}./~<\\)\]-])(?:~|[.]{{1,2}})?/{_PATH}++(?:/{_PATH}++)*+/?{_LINE}",
        rf"(?<![{_W}./~@+%\\-])(?:{_PATH}++/)++{_PATH}{{0,200}}[.][{_LETTER}][{_AN}]{{0,7}}{_END}{_LINE}",
        rf"(?<![{_W}./~@+%\\-])[{_W}@+-]{{1,100}}+(?:[.][{_W}+-]{{1,60}}+){{0,5}}?[.]{_EXTENSIONS}(?![{_W}-]){_LINE}",
        rf"{_START}[A-Za-z]:(?:\\{{1,2}}+[^\s\\/:*?\"'<>|,;)]++)++",
        # dates and times
        f"{_NUMBER_START}[0-9]{{4}}[-/](?:0[1-9]|1[0-2])[-/][0-3][0-9](?:[T ]{_CLOCK}{_ZONE})?(?![0-9])",
        rf"{_NUMBER_START}[0-9]{{1,2}}([./-])[0-9]{{1,2}}\1(?:[0-9]{{4}}|[0-9]{{2}}){_END}(?![./-][0-9])",
        f"{_NUMBER_START}{_DAY}(?:[.]|{_ORDINAL}) (?:of )?{_MONTH}(?:,? {_YEAR})?{_END}",
        f"(?=[JFMASONDjfmasond]){_START}{_MONTH} (?:{_DAY}{_ORDINAL}(?:,? {_YEAR})?|{_YEAR}){_END}",
        f"{_NUMBER_START}{_CLOCK}(?: ?{_HALF_DAY})?{_ZONE}",
        f"{_NUMBER_START}(?:0?[1-9]|1[0-2]) ?{_HALF_DAY}{_ZONE}",
        # money, and numbers with a unit
        f"[$€£¥₹]{_GAP}{_NUMBER}{_SCALE}{_END}",
        f"(?=[A-Z]){_START}{_CURRENCY} ?{_NUMBER}{_SCALE}{_END}",
        f"{_NUMBER_START}{_NUMBER}{_SCALE}[ \u00a0\u202f]?(?:[$€£¥₹]|{_CURRENCY}{_END})",
        f"{_NUMBER_START}{_NUMBER}(?:[-–]{_NUMBER})?{_GAP}(?:[%‰]|°[CF]?|{_UNITS}{_END})",
        f"{_NUMBER_START}[0-9]{{1,9}}+[.][0-9]{{2}}{_END}(?![.][0-9])",
        f"{_NUMBER_START}[0-9]{{1,3}}(?:[,'’][0-9]{{3}}){{1,6}}+(?:[.][0-9]{{1,9}}+)?{_END}",
        # ids: of digits, numbered, telephone numbers, versions and addresses, words of letters and digits, named ones
        # A number at the start of a line, before a colon or a tab, is the number of the line.
        f"{_NUMBER_START}(?:(?<!\n)|(?![0-9]{{1,7}}:))(?![0-9]{{1,7}}\t)[0-9]{{4,}}+(?:[.,][0-9]{{1,9}}+)?{_END}",
        f"(?<![{_W}&#])#[0-9]{{1,12}}{_END}",
        f"(?<![{_W}+])[+][0-9]{{1,3}}(?:[ .()/-]{{1,2}}[0-9]{{1,5}}){{2,6}}{_END}",
        f"{_NUMBER_START}[0-9]{{3}}[-.][0-9]{{3}}[-.][0-9]{{4}}{_END}",
        f"(?=[v0-9])(?<![{_W}.])(?:v[0-9]{{1,5}}[.][0-9]{{1,6}}|[0-9]{{1,5}}(?:[.][0-9]{{1,6}}){{2}})(?:[.][0-9]{{1,6}})*+"
        f"(?:-[{_AN}.]{{1,30}}+)?(?![{_W}.-][0-9])",
        f"(?<![{_W}-])(?=[{_LETTER}_-]{{0,80}}+[0-9])(?=[0-9_-]{{0,80}}+[{_LETTER}])(?![0-9]{{1,6}}(?:st|nd|rd|th){_END})"
        f"(?=[{_W}-]{{3}}|[0-9]?[A-Z])[{_AN}]++(?:[_-]{{1,3}}+[{_AN}]++)*+",
        f"{_NAMED}(?P<fact>[A-Z][A-Z0-9-]{{3,19}}+){_END}",
        rf'"[{_W}-]{{0,40}}(?:id|Id|ID|code|number|locator|reference)\\?"\s{{0,4}}:\s{{0,4}}\\?"(?P<fact>[^"\\\s]{{2,100}}+)\\?"',
    )
)
