"""How people ask, whatever they ask about: wrappers around noun phrases, verb phrases and whole questions."""
from __future__ import annotations

# Around a noun phrase {x}: "what is {x}". Number and article are left as they come: so people write.
CONCEPT = (
    "what is {x}", "what's {x}", "what are {x}", "what does {x} mean", "what is meant by {x}",
    "what do (you|they|people) mean by {x}", "(explain|describe|define) {x}",
    "(can|could|would) you explain {x}[ to me][ please]", "please explain {x}",
    "explain {x} (please|to me|simply|in simple words|in plain english)",
    "tell me (about|something about|a bit about|more about) {x}", "what (exactly|actually|on earth|the heck) is {x}",
    "what is {x} (exactly|actually|anyway|again|about|for|good for|all about)",
    "what's {x} (exactly|actually|anyway|again|about|for|good for|used for)", "{x} meaning", "meaning of {x}", "{x} definition",
    "{x} explained", "{x}, what is (it|that)", "{x}, what does (it|that) mean",
    "i (keep reading|read|heard|keep hearing|saw something) about {x}, what is (it|that)",
    "i (don't|do not) (know|understand|get) what {x} (is|are|means)", "(never heard|no idea|not a clue) (of|about|what) {x}",
    "help me understand {x}", "what should i know about {x}", "i('m| am) new here, what is {x}",
    "in (one sentence|short|a nutshell|plain words), what is {x}", "could you tell me what {x} (is|means)",
    "do you know what {x} (is|means)", "can you tell me what {x} (is|are|means)", "what's the (deal|story|thing) with {x}",
    "what's the (point|purpose|idea|use|meaning) of {x}", "someone mentioned {x}, what('s| is) that",
    "(where|how) does {x} come (in|into play)", "i see {x} everywhere, what is it", "what's up with {x}",
    "why do (people|you|they) (talk about|mention|use) {x}", "how does {x} work", "how do {x} work",
    "what is {x} (in edgellm|here)", "what kind of thing is {x}", "i'd like to (understand|know about|learn about) {x}",
    "teach me about {x}", "give me a (short|quick|simple) explanation of {x}", "so what is {x}", "{x}", "{x} please",
    "about {x}",
)
# Around a verb phrase {x}: "how do I {x}".
ACTION = (
    "how do i {x}", "how do i {x}", "how can i {x}", "how to {x}", "how would i {x}", "how could i {x}", "how should i {x}",
    "how does one {x}", "how do you {x}", "how might i {x}", "what do i (do|type|write|enter|run|need) to {x}",
    "what should i (do|type|write) to {x}", "what('s| is) the (way|best way|easiest way|command|trick|right way) to {x}",
    "which command (do i need|do i use|is there|lets me use) to {x}",
    "(i want|i'd like|i would like|i need|i have|i'm trying|trying|i wish) to {x}", "i want to {x}, how",
    "i want to {x}, what do i do", "is there (a|any|an easy) way to {x}", "is it possible to {x}", "(can|could) i {x}",
    "can you {x}", "can you (help me|show me how to|tell me how to) {x}", "am i able to {x}", "(show|tell) me how to {x}",
    "(help|please help) me {x}", "help me to {x}", "what if i want to {x}", "how exactly do i {x}",
    "how do i {x} (here|with edgellm|in edgellm|please|again|then|on my computer)", "any (way|chance|idea how) to {x}",
    "let me {x}", "{x}", "{x}, how", "{x} how", "i (don't|do not) know how to {x}", "i can't (figure out|find out) how to {x}",
    "where do i {x}", "(please|pls) tell me how (to|i can|i could) {x}", "what's needed to {x}", "steps to {x}",
    "instructions to {x}", "does edgellm let me {x}", "would it be possible to {x}", "how is it possible to {x}",
)
# A topic named in passing, as after another answer: "and {x}?".
ELLIPSIS = (
    "and {x}", "what about {x}", "how about {x}", "and what about {x}", "and how about {x}", "ok and {x}", "{x}", "{x} too",
    "now {x}", "same for {x}", "and for {x}", "and (the|this) {x} thing", "so {x}", "then {x}", "but {x}", "what of {x}",
    "also {x}", "and {x} then", "and what's with {x}", "ok, {x}",
)
OPENERS = (
    "hi, ", "hello, ", "hey, ", "hey ", "hi ", "hello! ", "hi! ", "good evening, ", "so ", "so, ", "ok ", "ok, ", "okay, ",
    "well, ", "and ", "sorry, ", "excuse me, ", "quick question: ", "question: ", "one question: ", "another question: ",
    "just wondering, ", "i was wondering, ", "i wonder: ", "dumb question: ", "stupid question, ", "maybe a silly question, ",
    "um, ", "hm, ", "erm ", "please, ", "pls ", "one more thing: ", "next question: ", "by the way, ", "btw ", "actually, ",
    "now, ", "right, ", "alright, ", "dear guide, ", "guide, ", "tell me, ", "tell me: ", "say, ", "listen, ", "hey guide, ",
    "first of all, ", "i'm new to this. ", "i'm a beginner, ", "i just installed this. ", "i have a question. ",
    "can i ask you something? ", "help! ", "oh, ", "ah ok. ", "great. ", "got it. ", "i see. ", "thanks. ", "thanks! ", "cool, ",
    "nice. ", "hmm, ", "yo, ", "basically, ", "i'm on linux. ", "i have a mac. ", "i'm on windows. ",
    "my friend told me about this. ", "my boss wants to know: ", "for my report: ", "i've been using ollama so far. ",
    "i read the readme but ", "sorry if this was asked before, ", "i'm not a programmer. ", "i'm a student. ",
    "a colleague asks: ", "ok so ", "hey there, ", "what i'd like to know: ", "one thing i don't get: ", "there's one thing: ",
    "i was told to ask you: ", "no hurry, but ", "i'm curious, ", "out of curiosity, ", "just to be sure: ", "to be clear, ",
    "quick one: ", "before i forget: ", "first question: ", "small question, ", "my question is: ", "tell me honestly, ",
    "in your opinion, ", "hi guide! ", "sorry to bother you, ", "yes but ", "i'm trying this out. ",
    "i installed it yesterday. ", "it's my first time here. ", "i am lost: ", "please help, ", "um so ", "oh and ",
)
CLOSERS = (
    " please", ", please", " pls", " thanks", ", thanks", " thx", " then", " exactly", " again", " now", " actually", " anyway",
    ", i'm new", ", i'm a beginner", ", in simple words", ", in short", " in one sentence", ", roughly", ", do you know",
    ", any idea", ", can you tell me", " or not", " tho", " though", ", if i may ask", " here", " with edgellm", " in edgellm",
    ", i wonder", " lol", " :)", " :/", ", can you help", ", help", " btw", ", just curious", " today",
)
# Bare follow-ups to the last answer, by what they ask for.
FOLLOW = {
    "why": (
        "why", "why (is that|so|not|though)", "but why", "why is that so", "and why", "what's the reason", "what for",
        "how come", "why does it do that", "why would i (want|need) that", "what is the reason for that", "why should i care",
    ),
    "how": (
        "how", "how (do i do that|does that work|so|exactly)", "and how", "ok how", "but how", "how do i do (it|this|that)",
        "how does (it|this) work", "can you show me how", "what do i have to type", "what do i type", "which command is that",
        "how would i do that", "how can i do that",
    ),
    "eg": (
        "example", "an example[ please]", "(give|show) me an example", "for example", "like what", "such as",
        "can you give (me |)an example", "do you have an example", "e.g.", "what would that look like", "how does that look",
        "show me",
    ),
    "more": (
        "more", "tell me more", "go on", "more details[ please]", "and", "can you say more", "explain (that|it|more)",
        "i don't understand", "what does that mean", "i don't get it", "huh", "what", "what do you mean", "continue",
        "anything else to know", "can you elaborate", "say more about that", "details", "keep going", "i still don't understand",
        "in other words", "that's too complicated", "say it simpler", "simpler please", "can you explain that differently",
    ),
}
REPEAT = (
    "again[ please]", "say that again", "(can|could) you say that again", "repeat[ that|][ please]", "pardon", "sorry, what",
    "what did you say", "come again", "once more", "i didn't catch that", "what was that", "one more time",
    "what was that again", "please repeat[ that]", "what did you just say", "i forgot what you said",
)
SHORTER = (
    "shorter[ please]", "in short", "in one sentence", "tl;dr", "tldr", "too long", "make it shorter", "summarise that",
    "can you say that in one sentence", "the short version", "briefly", "keep it short", "short answer please", "sum it up",
    "too long, didn't read",
)
CODE_AGAIN = (
    "what was the command", "the command again please", "which command", "just the command", "only the command please",
    "and the command", "can you repeat the command", "so what do i type", "so which command do i run", "give me the command",
    "i need the exact command",
)
THANKS = (
    "thanks", "thank you", "thank you very much", "thanks a lot", "thx", "great, thanks", "perfect", "perfect, thanks", "cool",
    "got it", "ok thanks", "awesome", "nice", "that helps", "very helpful", "good to know", "ah, i see", "understood",
    "makes sense", "ok", "okay", "thanks for (that|the help|explaining|your help)", "many thanks", "wonderful", "great",
    "cheers", "alright, thank you", "i see, thanks", "ty", "brilliant", "ok got it", "oh nice", "clear", "super",
)
JOINERS = (
    "and ", "ok, and ", "ok. ", "thanks. ", "thanks! ", "thank you. ", "great. ", "cool. ", "i see. ", "got it. ", "good. ",
    "alright. ", "nice. ", "another thing: ", "next: ", "also, ", "one more: ", "then ", "now ", "so ", "ok so ", "understood. ",
    "hm. ", "hm ok. ", "ah. ", "aha. ", "right. ", "perfect. ", "interesting. ", "good to know. ", "makes sense. ", "oh. ",
    "wow. ", "fine. ", "ok ", "and then, ", "but ", "wait, ", "makes sense, ", "ok but ", "last question: ", "different topic: ",
    "something else: ",
)
# The same thing from Python, and with more or less memory.
PYTHON_TOO = (
    "and in python", "and from python", "how (do i do that|is that|does that work|about|) in python", "the same in python",
    "in python", "and in code", "what about python", "(can|could) i do that in python", "same thing in python",
    "and how in python", "is that possible in python", "and with the library", "and from my program", "now in python",
    "python version[ please]",
)
MORE_MEMORY = (
    "and with (twice|double) (that|as much|the memory)",
    "(what|and what) if i (had|have|buy|add) (twice as much|double|more|more memory|twice that)", "and with more[ memory| ram]",
    "what if i (double|upgrade) it", "if i had more",
)
LESS_MEMORY = (
    "and with half (of that|as much|the memory)", "what if i (had|have|only have) (half|less|half of that|half as much)",
    "and with less[ memory| ram]", "if i had less", "and half of that",
)
# System prompts, which change nothing.
SYSTEM = (
    "You are the guide.", "You are a helpful assistant.", "You are the guide of edgellm.", "You answer briefly.",
    "You answer in one sentence.", "Be brief.", "Be polite.", "You are a friendly assistant.",
    "You are a tiny model that explains edgellm.", "Answer the user's questions.",
    "You are edgellm's guide. Answer in short sentences.", "Be concise and friendly.", "Keep answers short.",
    "You are a chatbot.",
)
# What made-up names and things are made of.
SYLLABLES = (
    "ba", "be", "bo", "da", "de", "di", "fa", "fe", "ga", "gi", "ha", "jo", "ka", "ke", "ki", "la", "le", "li", "lo", "ma", "me",
    "mi", "mo", "na", "ne", "ni", "no", "pa", "pe", "ra", "re", "ri", "ro", "sa", "se", "si", "ta", "te", "ti", "to", "tru",
    "va", "ve", "vi", "wa", "xa", "ya", "yo", "za", "zo", "bran", "crel", "dor", "fin", "gar", "hul", "lan", "mor", "nis", "plo",
    "quen", "rin", "stel", "tor", "ulm", "ven", "wil", "zan",
)
