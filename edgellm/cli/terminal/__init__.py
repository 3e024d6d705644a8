"""Input and output of the command line: the answer on stdout, everything else on stderr.

output            the two streams: say, complain, the writer of an answer; answering shows a stream of events with it
filter            removes control sequences from foreign text; screen (what the terminal can do, its width)
wrapping          breaks an answer at words while it streams; markdown and emphasis style it
table             rows in columns; profile_table (bench --profile); format_stats (counts, sizes, speeds in one line)
progress          a line for what takes long; fetching (the bar of a download)
keyboard          the keyboard while nobody reads it; piped (text from standard input)
"""
