"""Helper programs that answer each line of their input with a line of JSON."""

import json
import subprocess

from .node import Failed


class Talk:
    """A program of tests/upstream/cmd/informers, which is ready when it has printed its first line."""

    def __init__(self, command):
        words = [str(word) for word in command]
        self.program = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.first = self.line()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.program.kill()
        self.program.communicate()

    def line(self):
        line = self.program.stdout.readline()
        if not line:
            raise Failed(f"{' '.join(self.program.args)}: {self.program.stderr.read()}")
        return json.loads(line)

    def ask(self, question):
        self.program.stdin.write(question + "\n")
        self.program.stdin.flush()
        return self.line()
