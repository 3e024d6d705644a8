"""The threads' loop and measurements.

executor        "start", "walk", "wait": a thread takes the records of its table one after the other, meets the others at barriers,
                takes chunks where work is scheduled dynamically, prefetches the weights after a barrier while it waits, and spins,
                then sleeps, until the next plan
lap             time stamps between records, for profiles
probe           reads memory as a stream: the roof of decoding
"""
