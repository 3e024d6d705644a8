"""The ways in which people mistype: neighbours on the keyboard, lost and doubled letters, short forms, case, punctuation."""
from __future__ import annotations

import random
import re

ENDS: dict[tuple[bool, bool], tuple[str, ...]] = {             # (question, sloppy): how a message ends
    (True, True): ("?", "?", "?", "?", "", "", "??", " ?", "...", "."), (True, False): ("?", "?", "?", "?", "?", "?", ""),
    (False, True): ("", "", "", ".", "!", "!!", "..."), (False, False): ("", ".", ".", "!", "!"),
}
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")
SHORT = {
    "you": ("u",), "are": ("r",), "your": ("ur",), "please": ("pls", "plz", "please"), "thanks": ("thx", "tnx", "ty"),
    "and": ("&", "n"), "what's": ("whats", "wats", "what is"), "what": ("wat", "wht"), "because": ("cuz", "bc"),
    "with": ("w/", "wit"), "about": ("abt",), "without": ("w/o",), "something": ("sth", "smth"), "people": ("ppl",),
    "though": ("tho",), "really": ("rly",), "know": ("kno",), "i'm": ("im",), "i've": ("ive",), "don't": ("dont",),
    "can't": ("cant",), "doesn't": ("doesnt",), "isn't": ("isnt",), "it's": ("its",), "won't": ("wont",), "who's": ("whos",),
    "where's": ("wheres",), "how's": ("hows",), "that's": ("thats",), "there's": ("theres",), "let's": ("lets",),
    "didn't": ("didnt",), "i'd": ("id",), "i'll": ("ill",), "you're": ("youre", "ur"), "want to": ("wanna",),
    "going to": ("gonna",), "got to": ("gotta",), "kind of": ("kinda",), "give me": ("gimme",), "command": ("comand", "cmd"),
    "recommend": ("recomend", "reccomend"), "memory": ("memmory", "mem"), "download": ("downlaod", "dl"),
    "quantisation": ("quantization", "quantizaton"), "temperature": ("temprature", "temp"), "difference": ("diffrence", "diff"),
    "separate": ("seperate",), "tokenizer": ("tokeniser",), "computer": ("compter", "pc"), "raspberry": ("rasberry", "raspbery"),
    "python": ("pyhton",), "language": ("langauge",), "answer": ("anser", "awnser"), "license": ("licence", "lisence"),
    "licence": ("license", "lisence"), "definitely": ("definately",), "which": ("wich",), "context": ("contxt",),
    "install": ("instal",),
}
CASED = {
    "gguf": "GGUF", "kv": "KV", "ram": "RAM", "cpu": "CPU", "gpu": "GPU", "gb": "GB", "python": "Python", "mac": "Mac",
    "windows": "Windows", "linux": "Linux", "i": "I", "i'm": "I'm", "i've": "I've", "i'd": "I'd", "i'll": "I'll",
    "raspberry": "Raspberry", "pi": "Pi", "json": "JSON", "mit": "MIT", "chatgpt": "ChatGPT", "openai": "OpenAI", "qwen": "Qwen",
    "llama": "Llama", "gemma": "Gemma", "mistral": "Mistral", "phi": "Phi", "hugging": "Hugging", "face": "Face",
    "ollama": "Ollama", "macbook": "MacBook", "apple": "Apple", "nvidia": "NVIDIA", "english": "English", "german": "German",
    "french": "French", "spanish": "Spanish", "api": "API", "ctrl-c": "Ctrl-C", "llm": "LLM", "ai": "AI", "numba": "Numba",
    "avx2": "AVX2", "mlx": "MLX", "android": "Android", "docker": "Docker", "rope": "RoPE",
}
TYPE = re.compile(r"^(?:i?q\d(?:_[a-z0-9]+)*|b?f(?:16|32)|mxfp4)$")
SYNONYMS = {
    "computer": ("machine", "laptop", "pc", "box", "notebook", "desktop", "system"),
    "laptop": ("computer", "notebook", "machine"),
    "bigger": ("larger", "better", "smarter", "stronger", "more capable", "proper", "real", "full", "cleverer"),
    "big": ("large", "huge"), "small": ("little", "tiny"), "fast": ("quick", "speedy"), "faster": ("quicker", "speedier"),
    "slow": ("sluggish", "so slow", "laggy"), "download": ("fetch", "get", "grab", "pull down"), "memory": ("ram",),
    "ram": ("memory",), "program": ("tool", "app", "software", "thing"),
    "delete": ("remove", "erase", "get rid of", "throw away"), "start": ("launch", "begin", "run", "open"),
    "use": ("work with", "utilise", "try"), "show": ("display", "print", "list"),
    "stop": ("end", "halt", "interrupt", "abort", "cancel"), "change": ("set", "adjust", "modify", "alter", "switch"),
    "good": ("decent", "fine", "suitable", "right"), "best": ("ideal", "right", "optimal", "most suitable"),
    "mean": ("stand for", "say"), "explain": ("describe", "clarify", "break down"), "answer": ("reply", "response"),
    "answers": ("replies", "responses", "output"), "question": ("thing to ask", "query"), "pick": ("choose", "select", "take"),
    "choose": ("pick", "select", "take"), "need": ("require", "want"), "folder": ("directory", "place"),
    "text": ("prompt", "string"), "exit": ("quit", "leave"), "leave": ("exit", "quit", "get out of"),
    "chat": ("conversation", "talk"), "conversation": ("chat", "talk", "discussion"), "save": ("keep", "store"),
    "kept": ("stored", "saved"), "stored": ("saved", "kept"), "website": ("page", "site"),
    "error": ("error message", "problem", "failure"), "install": ("set up", "get", "put"), "speed": ("pace", "performance"),
    "recommend": ("suggest", "advise"), "internet": ("network", "connection", "wifi", "web"),
    "great": ("awesome", "cool", "nice"), "fits": ("works on", "runs on", "goes well on", "suits"),
    "forget": ("lose", "drop", "throw out"), "remember": ("recall", "keep in mind", "memorise"),
    "happens": ("occurs", "takes place", "goes on"), "full": ("used up", "exhausted", "filled up"),
    "difference": ("distinction", "gap"), "support": ("handle", "work with", "allow"),
    "supported": ("handled", "compatible", "possible"), "random": ("unpredictable", "chaotic"),
    "again": ("once more", "another time"), "write": ("produce", "generate"), "find": ("locate", "discover", "spot"),
    "limit": ("cap", "restrict"), "allowed": ("permitted", "ok"), "wrong": ("incorrect", "false", "off"),
    "true": ("correct", "right"), "measure": ("test", "check", "gauge"), "beginning": ("start",),
    "beginner": ("newbie", "novice", "starter", "first-timer"), "buy": ("purchase",), "old": ("ancient", "ageing", "dated"),
    "clear": ("wipe", "empty", "flush"), "broken": ("damaged", "busted", "dead"), "letters": ("characters", "symbols"),
    "possible": ("doable", "feasible", "an option"), "enough": ("sufficient", "ok"),
    "company": ("firm", "business", "corporation"), "people": ("folks", "users", "everybody"), "person": ("human", "somebody"),
    "phone": ("mobile", "smartphone", "cell phone"), "send": ("transmit", "pass", "submit"),
    "private": ("confidential", "secret"), "trust": ("believe", "rely on"), "talk": ("speak", "chat"),
    "talking": ("speaking", "chatting"), "funny": ("hilarious", "amusing"), "sad": ("unhappy", "down", "blue"),
    "tired": ("sleepy", "exhausted"), "nice": ("lovely", "kind"), "stupid": ("dumb", "silly", "dense"),
    "long": ("lengthy", "big"), "short": ("brief", "compact"), "different": ("other", "varying"),
    "cost": ("charge", "set me back"), "money": ("cash", "dollars"), "list": ("overview", "table"),
    "options": ("flags", "switches", "settings"), "command": ("instruction", "call"), "commands": ("instructions", "calls"),
    "message": ("line", "text"), "messages": ("lines", "texts"), "words": ("terms",), "word": ("term",), "type": ("kind",),
    "types": ("kinds", "sorts"), "set": ("put", "configure", "specify"), "get": ("obtain", "have", "receive"),
    "run": ("execute", "use", "start"), "works": ("functions", "operates"), "work": ("function", "operate"), "kill": ("end",),
    "see": ("view", "look at"), "make": ("get", "let"), "maker": ("author",), "made": ("built", "created"),
    "huge": ("enormous", "gigantic"), "quit": ("exit", "leave"), "help": ("assist", "support"), "learn": ("find out", "study"),
    "know": ("be told", "find out"), "tell": ("show", "inform"), "tips": ("advice", "hints", "tricks"),
    "crash": ("die", "break"), "crashes": ("dies", "breaks"), "machine": ("computer", "device", "box", "rig"),
    "cores": ("processors", "cpus"), "cpu": ("processor", "chip"), "processor": ("cpu", "chip"),
    "gpu": ("graphics card", "video card"), "disk": ("drive", "harddisk", "ssd", "hard drive"), "script": ("program",),
    "answering": ("replying", "responding"), "reply": ("answer", "response"), "calm": ("tame",), "boring": ("dull", "bland"),
    "creative": ("imaginative", "inventive"), "default": ("standard", "preset", "usual"),
    "maximum": ("highest", "largest", "upper"), "minimum": ("lowest", "smallest"), "usually": ("normally", "typically"),
}
FILLERS = (


    "actually", "really", "just", "like", "maybe", "please", "then", "exactly", "even", "uh", "basically", "now", "perhaps",
    "simply",
)
DROPPED = frozenset({
    "the", "a", "an", "do", "does", "is", "are", "i", "to", "of", "it", "my", "can", "with", "for", "in", "on", "that", "this",
})


def with_synonyms(text: str, dice: random.Random, rate: float = 0.12) -> str:
    """Some words replaced by others of the same meaning."""
    return " ".join(dice.choice(SYNONYMS[word]) if word in SYNONYMS and dice.random() < rate else word for word in text.split(" "))


def with_fillers(text: str, dice: random.Random) -> str:
    """A filler somewhere after the first word."""
    words = text.split(" ")
    words.insert(dice.randint(1, len(words)), dice.choice(FILLERS))
    return " ".join(words)


def with_gaps(text: str, dice: random.Random) -> str:
    """Small words left out, as in a search box; what carries the meaning stays."""
    words = [word for word in text.split(" ") if word not in DROPPED or dice.random() < 0.5]
    return " ".join(words) if len(words) > 1 else text


def with_typos(text: str, dice: random.Random, count: int) -> str:
    """`count` slips of the fingers, in words of four letters and more; model names and commands are spared half the time."""
    for _ in range(count):
        words = text.split(" ")
        long = [k for k, word in enumerate(words) if len(word) > 3 and word.isascii() and (word.isalpha() or dice.random() < 0.3)]
        if not long:
            return text
        k = dice.choice(long)
        words[k] = _slip(words[k], dice)
        text = " ".join(words)
    return text


def _slip(word: str, dice: random.Random) -> str:
    at = dice.randrange(1, len(word) - 1)
    kind = dice.random()
    if kind < 0.30:                                            # two letters swapped
        return word[:at] + word[at + 1] + word[at] + word[at + 2:]
    if kind < 0.58:                                            # one lost
        return word[:at] + word[at + 1:]
    if kind < 0.75:                                            # one doubled
        return word[:at] + word[at] + word[at:]
    if kind < 0.92:                                            # a neighbour hit instead
        return word[:at] + _neighbour(word[at], dice) + word[at + 1:]
    return word[:at] + " " + word[at:] if kind < 0.96 else word[:at] + _neighbour(word[at], dice) + word[at:]


def _neighbour(letter: str, dice: random.Random) -> str:
    for row in ROWS:
        at = row.find(letter.lower())
        if at >= 0:
            return dice.choice(row[max(at - 1, 0): at] + row[at + 1: at + 2])
    return letter


def with_short_forms(text: str, dice: random.Random, rate: float) -> str:
    """Short forms and usual misspellings."""
    for long in ("want to", "going to", "got to", "kind of", "give me"):
        if long in text and dice.random() < rate:
            text = text.replace(long, SHORT[long][0])
    return " ".join(dice.choice(SHORT[word]) if word in SHORT and dice.random() < rate else word for word in text.split(" "))


def with_names(text: str, rate: float, dice: random.Random) -> str:
    """Names written as their owners write them, each with probability `rate`."""
    def cased(word: str) -> str:
        bare = word.rstrip("?,.!")
        if dice.random() >= rate:
            return word
        return (bare.upper() if TYPE.match(bare) else CASED.get(bare, bare)) + word[len(bare):]

    return " ".join(cased(word) for word in text.split(" "))


def as_typed(text: str, dice: random.Random, *, question: bool = True, clean: float = 0.7) -> str:
    """A lower-case question as somebody might type it; with probability `clean` without slips."""
    text = with_synonyms(text, dice)
    if len(text) > 12 and "/" not in text:
        text = with_fillers(text, dice) if dice.random() < 0.06 else with_gaps(text, dice) if dice.random() < 0.07 else text
    sloppy = dice.random() >= clean
    if sloppy:
        text = with_short_forms(text, dice, dice.choice((0.0, 0.2, 0.6)))
        text = with_typos(text, dice, dice.choice((0, 0, 0, 0, 1, 1, 1, 1, 2, 3)))
    text = with_names(text, dice.choice((0.0, 0.5, 1.0, 1.0) if not sloppy else (0.0, 0.0, 0.5, 1.0)), dice)
    if dice.random() < (0.75 if not sloppy else 0.3):
        text = text[:1].upper() + text[1:]
    if sloppy and dice.random() < 0.03:
        text = text.upper()
    return text if text.endswith(("?", "!", ".")) else text + dice.choice(ENDS[question, sloppy])
