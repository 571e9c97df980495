"""Sends the same requests to upstream's kube-apiserver and to `sublet serve --api-only` and compares
codes, content types, warnings and bodies.

    run.py --requests DIR --allowed FILE --ours URL --upstream URL --login CERT,KEY,CA [--only TEXT]

Only uid, times, resourceVersion, generated names, the audit id and a server's own address are
normalised. Every other difference needs an exact entry of its own in the allowed file: request, path,
both values, the reason. A value may stand there as 'sha256:...' of its JSON: where it is long, and for
the texts that describe a table's columns, which are one difference a table. An entry that no request
needs is a failure. Prints each difference (--propose: as an entry) and closes with 'N passed, N failed'.
One thread; one connection per server; at most 30 s per answer.
"""
import argparse
import base64
import hashlib
import http.client
import json
import pathlib
import re
import ssl
import sys
import time
import urllib.parse

import requests as data

AGE = re.compile(r'^(\d+[smhd])+$')
UID = re.compile(r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}')
TIME = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)')
ACCESS = re.compile(r'kube-api-access-[a-z0-9]{5}')
GENERATED = re.compile(r'\b(generated-)[a-z0-9]{5}\b')
REVISION = re.compile(r'((?:resourceVersion: \\?"|resource version: |current: |resourceVersion\\?": ?\\?"|'
                      r'provided resource version \(?|resourceVersion: Invalid value: "?))\d+')


class Server:
    """One API server and what was kept of its answers."""

    def __init__(self, name, url, context):
        self.name, self.kept = name, {}
        self.address = urllib.parse.urlsplit(url).netloc
        self.connection = http.client.HTTPSConnection(self.address, context=context, timeout=30)

    def filled(self, text):
        return re.sub(r'\$\{(\w+)\}', lambda m: str(self.kept.get(m.group(1), m.group(0))), text)

    def send(self, request):
        headers = {'User-Agent': 'differential/1'}
        if request.body is not None:
            headers['Content-Type'] = request.content_type
        headers.update({k: self.filled(v) for k, v in request.headers.items()})
        body = None if request.body is None else self.filled(request.body).encode()
        self.connection.request(request.method, self.filled(request.path), body=body, headers=headers)
        response = self.connection.getresponse()
        parsed = parse(response.read())
        for word, path in request.keeps:
            try:
                self.kept[word] = data.find(parsed, path)
            except (KeyError, IndexError, TypeError):
                self.kept[word] = 'nothing-was-kept'
        return {
            'code': response.status,
            'type': response.headers.get('Content-Type', ''),
            'warnings': response.headers.get_all('Warning') or [],
            'body': parsed,
        }


def parse(raw):
    """JSON, a list of the JSON values of a stream, or text."""
    if raw.startswith(b'k8s\0'):
        return 'protobuf'
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return 'binary ' + base64.b64encode(raw).decode()
    values, decoder, at = [], json.JSONDecoder(), 0
    try:
        while at < len(text):
            while at < len(text) and text[at] in ' \n':
                at += 1
            if at < len(text):
                value, at = decoder.raw_decode(text, at)
                values.append(value)
    except ValueError:
        return text
    return values[0] if len(values) == 1 else values or text


def plain_token(value):
    """A continue token without its resource version."""
    try:
        inside = json.loads(base64.urlsafe_b64decode(value + '=' * (-len(value) % 4)))
        inside['rv'] = 'RV'
        return inside
    except ValueError:
        return value


def normal(value, address, key=''):
    if isinstance(value, dict):
        out = {}
        generated = isinstance(value.get('generateName'), str)
        for name, inside in value.items():
            if name == 'name' and generated:
                inside = 'GENERATED'
            out[normal_text(name, address)] = normal(inside, address, name)
        return out
    if isinstance(value, list):
        out = [normal(one, address, key) for one in value]
        # Its order is that of times.
        return sorted(out, key=lambda one: json.dumps(one, sort_keys=True)) if key == 'managedFields' else out
    if isinstance(value, int) and key == 'targetPort' and address.endswith(f':{value}'):
        return 'PORT'
    if isinstance(value, str):
        if key == 'resourceVersion' and value.isdigit() and value != '0':
            return 'RV'
        if key == 'cells' and AGE.match(value):
            return 'AGE'
        if key == 'continue' and value:
            return plain_token(value)
        return normal_text(value, address)
    return value


def normal_text(text, address):
    text = text.replace(address, 'SERVER')
    text = GENERATED.sub(r'\1GENERATED', ACCESS.sub('kube-api-access-GENERATED', text))
    return REVISION.sub(r'\1RV', TIME.sub('TIME', UID.sub('UID', text)))


MISSING = {'no': 'value'}


def differences(ours, theirs, path=''):
    """[(path, ours, upstream)], a missing side being MISSING."""
    if type(ours) is not type(theirs):
        return [(path, ours, theirs)]
    if isinstance(ours, dict):
        out, ours, theirs = texts_apart(ours, theirs, path)
        for name in sorted(set(ours) | set(theirs)):
            inside = f'{path}.{name}'
            if name not in ours or name not in theirs:
                out.append((inside, ours.get(name, MISSING), theirs.get(name, MISSING)))
            else:
                out += differences(ours[name], theirs[name], inside)
        return out
    if isinstance(ours, list) and len(ours) == len(theirs):
        out = []
        for index, pair in enumerate(zip(ours, theirs)):
            out += differences(*pair, f'{path}[{index}]')
        return out
    return [] if ours == theirs else [(path, ours, theirs)]


def texts_apart(ours, theirs, path):
    """The texts of a Table's columns as one difference, and both tables without them."""
    columns = [one.get('columnDefinitions') for one in (ours, theirs)]
    if not all(isinstance(one, list) for one in columns) or len(columns[0]) != len(columns[1]):
        return [], ours, theirs
    texts = [[column.get('description') for column in one] for one in columns]
    bare = [dict(one, columnDefinitions=[dict(c, description='') for c in one['columnDefinitions']])
            for one in (ours, theirs)]
    if texts[0] == texts[1]:
        return [], *bare
    return [(path + '.columnDefinitions[*].description', texts[0], digest(texts[1]))], *bare


def digest(value):
    text = json.dumps(value, sort_keys=True)
    return 'sha256:' + hashlib.sha256(text.encode()).hexdigest()[:32]


LONG = 600  # bytes of JSON beyond which a proposed entry holds the digest


def proposed(value):
    return digest(value) if len(json.dumps(value)) > LONG else value


class Allowed:
    def __init__(self, path):
        self.entries = json.loads(pathlib.Path(path).read_text())
        for entry in self.entries:
            if set(entry) != {'request', 'path', 'ours', 'upstream', 'reason'} or not entry['reason']:
                sys.exit(f'{path}: an entry has request, path, ours, upstream and reason: {entry}')
        self.used = [False] * len(self.entries)

    def holds(self, key, path, ours, theirs):
        for index, entry in enumerate(self.entries):
            if (entry['request'], entry['path']) == (key, path) and all(
                    value == held or digest(value) == held
                    for held, value in ((entry['ours'], ours), (entry['upstream'], theirs))):
                self.used[index] = True
                return True
        return False


def connect(ours, upstream, login):
    certificate, key, authority = login.split(',')
    verified = ssl.create_default_context(cafile=authority)
    insecure = ssl.create_default_context()
    insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE
    for context in (verified, insecure):
        context.load_cert_chain(certificate, key)
    return Server('ours', ours, verified), Server('upstream', upstream, insecure)


def wait(servers, request):
    get = data.Request(request.key, 'GET', request.path, '', {}, None)
    for server in servers:
        end = time.monotonic() + 10
        while server.send(get)['code'] != 200:
            if time.monotonic() > end:
                sys.exit(f'{server.name}: {request.path} is not there within 10 s')
            time.sleep(0.05)


def shown(value):
    return '(missing)' if value is MISSING else json.dumps(value, sort_keys=True)


def main():
    parser = argparse.ArgumentParser()
    for name in ('requests', 'allowed', 'ours', 'upstream', 'login'):
        parser.add_argument('--' + name, required=True)
    parser.add_argument('--only', default='', help='show only requests whose key contains this')
    parser.add_argument('--width', type=int, default=400)
    parser.add_argument('--propose', action='store_true', help='show differences as entries')
    arguments = parser.parse_args()
    reader = data.Reader()
    for file in sorted(pathlib.Path(arguments.requests).glob('*.txt')):
        reader.read(file.stem, file.read_text())
    allowed = Allowed(arguments.allowed)
    servers = connect(arguments.ours, arguments.upstream, arguments.login)
    passed = failed = bad = 0
    for request in reader.requests:
        if request.method == 'WAIT':
            wait(servers, request)
            continue
        answers = [normal(server.send(request), server.address) for server in servers]
        bad += answers[1]['code'] >= 400
        found = [d for d in differences(*answers)
                 if not allowed.holds(request.key, d[0], d[1], d[2])]
        passed, failed = passed + (not found), failed + bool(found)
        if found and arguments.propose:
            for path, ours, theirs in found:
                print(json.dumps({'request': request.key, 'path': path, 'ours': proposed(ours),
                                  'upstream': proposed(theirs), 'reason': ''}), flush=True)
        elif found and arguments.only in request.key:
            print('FAIL ', request.key)
            for path, ours, theirs in found[:12]:
                print(f'      {path}\n        ours     {shown(ours)[:arguments.width]}\n'
                      f'        upstream {shown(theirs)[:arguments.width]}')
    for used, entry in zip(allowed.used, allowed.entries):
        if not used:
            failed += 1
            print('FAIL  allowed, but no request needs it:', json.dumps(entry))
    print(f'{passed + failed} requests, {bad} of them refused by upstream; '
          f'{len(allowed.entries)} allowed differences')
    print(f'{passed} passed, {failed} failed')
    return 1 if failed or not passed else 0


if __name__ == '__main__':
    sys.exit(main())
