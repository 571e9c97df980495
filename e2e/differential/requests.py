"""The requests of the differential test as data: how a file of them is read.

A file is a list of blocks separated by blank lines; '#' begins a comment line.

    base NAME                 a named object, for the blocks below (JSON over any number of lines)
    {...}

    METHOD PATH [TYPE]        one request; TYPE is json (default), merge, strategic, jsonpatch, apply,
    Header: value             yaml, or a content type as it stands; headers, then the body: JSON, or
    = NAME                    a base with changes, one '.path.to[0].field VALUE' a line (VALUE is JSON,
    .path VALUE               '-' deletes), or '| text' lines for a body that is not JSON

    each METHOD PATH [TYPE] = NAME
    .path VALUE ;; .path VALUE    one request a line: the base with these changes

    wait PATH                 until both servers answer GET PATH with 200 (10 s); not compared

    keep WORD .path           keeps a value of the last answer; ${WORD} in paths, headers and bodies
                              below stands for it, on each server its own

Who uses it: run.py. One thread.
"""
import copy
import json
import re

CONTENT_TYPES = {
    'json': 'application/json',
    'merge': 'application/merge-patch+json',
    'strategic': 'application/strategic-merge-patch+json',
    'jsonpatch': 'application/json-patch+json',
    'apply': 'application/apply-patch+yaml',
    'yaml': 'application/yaml',
}
METHODS = ('GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS')
_STEP = re.compile(r'\.([A-Za-z0-9_$-]+)|\[(\d+)\]|\["([^"]+)"\]')
_HEADER = re.compile(r'^([A-Za-z][A-Za-z-]+): (.*)$')


class Request:
    """One request. `key` names it in the output and in allowed.json."""

    def __init__(self, key, method, path, content_type, headers, body):
        self.key, self.method, self.path = key, method, path
        self.content_type, self.headers, self.body = content_type, headers, body
        self.keeps = []  # (word, path), taken from the answer


def steps(path):
    """'.spec.containers[0]["a.b"]' to ['spec', 'containers', 0, 'a.b']."""
    out, at = [], 0
    while at < len(path):
        found = _STEP.match(path, at)
        if not found:
            raise ValueError('not a path: ' + path)
        name, index, quoted = found.groups()
        out.append(int(index) if index is not None else name if name is not None else quoted)
        at = found.end()
    return out


def find(value, path):
    for step in steps(path):
        value = value[step]
    return value


def change(value, line):
    """One '.path VALUE' applied to `value`, in place; missing objects are made."""
    path, _, text = line.strip().partition(' ')
    names = steps(path)
    for at, step in enumerate(names[:-1]):
        if isinstance(step, str) and step not in value:
            value[step] = [] if isinstance(names[at + 1], int) else {}
        if isinstance(step, int) and step == len(value):
            value.append({})
        value = value[step]
    last = names[-1]
    if text == '-':
        del value[last]
    elif isinstance(last, int) and last == len(value):
        value.append(json.loads(text))
    else:
        value[last] = json.loads(text)


class Reader:
    def __init__(self):
        self.bases = {}
        self.requests = []
        self.seen = {}

    def key(self, topic, method, path, changes):
        text = f'{topic}: {method} {path}' + (f' {changes}' if changes else '')
        count = self.seen[text] = self.seen.get(text, 0) + 1
        return text if count == 1 else f'{text} #{count}'

    def add(self, topic, head, headers, body, changes=''):
        method, path, *rest = head.split()
        kind = rest[0] if rest else 'json'
        self.requests.append(
            Request(self.key(topic, method, path, changes), method, path,
                    CONTENT_TYPES.get(kind, kind), headers, body))

    def built(self, name, lines):
        value = copy.deepcopy(self.bases[name])
        for line in lines:
            change(value, line)
        return json.dumps(value)

    def block(self, topic, lines):
        head, rest = lines[0], lines[1:]
        word = head.split()[0]
        if word == 'base':
            self.bases[head.split()[1]] = json.loads('\n'.join(rest))
        elif word == 'keep':
            for line in lines:
                _, name, path = line.split()
                self.requests[-1].keeps.append((name, path))
        elif word == 'wait':
            self.requests.append(Request(f'{topic}: {head}', 'WAIT', head.split()[1], '', {}, None))
        elif word == 'each':
            head, _, base = head[5:].rpartition(' = ')
            for line in rest:
                self.add(topic, head, {}, self.built(base, line.split(' ;; ')), line)
        elif word in METHODS:
            headers = {}
            while rest and _HEADER.match(rest[0]):
                name, value = _HEADER.match(rest.pop(0)).groups()
                headers[name] = value
            body, changes = None, ''
            if rest and rest[0].startswith('= '):
                body, changes = self.built(rest[0][2:], rest[1:]), ' ;; '.join(rest[1:])
            elif rest and rest[0].startswith('|'):
                body = '\n'.join(line[2:] for line in rest) + '\n'
            elif rest:
                body = '\n'.join(rest)
            self.add(topic, head, headers, body, changes)
        else:
            raise ValueError(f'{topic}: what is {head!r}?')

    def read(self, topic, text):
        block = []
        for line in text.split('\n') + ['']:
            if line.startswith('#'):
                continue
            if line.strip():
                block.append(line)
            elif block:
                self.block(topic, block)
                block = []
