"""Results of one run: each is a line of JSON, written, flushed and printed as it comes, so that a run which is cut off loses nothing."""

import json
import sys
import threading
import time

# The longest line on stdout, in characters: whoever runs this from afar sees a few thousand characters only. The file has all.
LONGEST_PRINTED = 240


class Results:
    """The file of results, and the clock of the run."""

    def __init__(self, path, seconds):
        self.file = open(path, "w", encoding="utf-8")
        self.began = time.monotonic()
        self.seconds = seconds
        self.lock = threading.Lock()

    def elapsed(self):
        """Seconds since the run began."""
        return time.monotonic() - self.began

    def left(self):
        """Seconds until the run's own deadline."""
        return self.seconds - self.elapsed()

    def say(self, told=None, **answer):
        """Saves an answer; prints `told`, its form for people (nothing, if that is empty), or else the answer itself."""
        line = json.dumps({"at_s": round(self.elapsed(), 1), **answer})
        printed = line if told is None else f"{self.elapsed():6.1f} s  {told}"
        with self.lock:
            self.file.write(line + "\n")
            self.file.flush()
            if told != "":
                print(printed[:LONGEST_PRINTED], flush=True)

    def attempt(self, part, body, *arguments):
        """Calls `body`; what it raises is an answer like any other, and the run goes on."""
        try:
            return body(*arguments)
        except Exception as error:  # whatever one part does, the others are still to be told
            print(f"first: {part}: {error!r}", file=sys.stderr, flush=True)
            self.say(f"{part}: FAILED: {error!r}", part=part, failed=repr(error))
            return None
