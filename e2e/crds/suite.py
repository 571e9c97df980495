"""Real definitions, from the folder of the first argument, against the server of the kubeconfig in the
second: all are applied and become Established (definitions that come in two versions are updated), then
one object generated from each served schema with a fixed seed is created and read back whole.
Prints the times; one line per failure; the last is 'N passed, N failed'. One thread, one connection."""
import base64
import http.client
import json
import pathlib
import random
import re
import ssl
import sys
import tempfile
import time
import urllib.parse

WORDS = ['a', 'abc', '1', '10m', '1s', '1h', '10%', 'v1', 'a.example.com', 'https://a.example.com', '/a', 'A', 'Abc',
         '10.0.0.0/8', '10.0.0.1', 'a/b', 'a:b', 'a=b', '0', '00:00', 'sha256:' + 'a' * 64, 'a' * 20, '1Gi', '*', 'GET',
         'urn:a:b', 'a@b.c', 'arn:aws:iam::123456789012:role/a', '2020-01-01T00:00:00Z', '1.2.3', 'v1.2.3', '']
FORMATS = {'date-time': '2020-01-01T00:00:00Z', 'date': '2020-01-01', 'byte': 'YQ==', 'duration': '1s', 'uri': 'https://a.b',
           'ipv4': '10.0.0.1', 'ipv6': '::1', 'cidr': '10.0.0.0/8', 'hostname': 'a.b', 'email': 'a@b.c',
           'uuid': '11111111-1111-1111-1111-111111111111', 'quantity': '1'}


class NotGenerated(Exception):
    """A required field whose pattern none of our words fits."""


class Server:
    def __init__(self, kubeconfig):
        text = pathlib.Path(kubeconfig).read_text()
        self.folder = tempfile.TemporaryDirectory()
        files = {}
        for name in ('certificate-authority', 'client-certificate', 'client-key'):
            found = re.search(name + r'-data: "?([A-Za-z0-9+/=]+)', text).group(1)
            files[name] = pathlib.Path(self.folder.name) / name
            files[name].write_bytes(base64.b64decode(found))
        context = ssl.create_default_context(cafile=files['certificate-authority'])
        context.load_cert_chain(files['client-certificate'], files['client-key'])
        url = re.search(r'server: "?(\S+?)"?\n', text).group(1)
        self.connection = http.client.HTTPSConnection(urllib.parse.urlsplit(url).netloc, context=context, timeout=30)

    def call(self, method, path, body=None, kind='application/json'):
        headers = {'Content-Type': kind} if body is not None else {}
        self.connection.request(method, path, body=body, headers=headers)
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())


def alternatives(schema):
    """Whether a value must fit one of several schemas: optional ones are left out."""
    if schema.get('x-kubernetes-int-or-string'):
        return False
    return any(word in one for word in ('oneOf', 'anyOf', 'allOf', 'not')
               for one in (schema, schema.get('items', {})) if not one.get('x-kubernetes-int-or-string'))


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def string(self, schema):
        if schema.get('enum'):
            return self.random.choice([one for one in schema['enum'] if one is not None])
        low, high = schema.get('minLength', 0), schema.get('maxLength', 1 << 20)
        words = [FORMATS[schema['format']]] if schema.get('format') in FORMATS else WORDS
        try:
            fits = re.compile(schema.get('pattern', '')).search
        except re.error as error:  # Go's syntax, not Python's
            raise NotGenerated(schema['pattern']) from error
        for word in words:
            if low <= len(word) <= high and fits(word):
                return word
        if 'pattern' not in schema:
            return 'a' * low
        raise NotGenerated(schema['pattern'])

    def number(self, schema):
        low, high = schema.get('minimum'), schema.get('maximum')
        if schema.get('enum'):
            return self.random.choice(schema['enum'])
        value = low if low is not None else min(1, high) if high is not None else 1
        value += 1 if schema.get('exclusiveMinimum') else 0
        return value + (-value) % schema['multipleOf'] if schema.get('multipleOf') else value

    def object(self, schema, depth):
        out = {}
        required = schema.get('required', [])
        for name, inside in sorted(schema.get('properties', {}).items()):
            wanted = name in required
            if not wanted and (out and len(out) >= schema.get('maxProperties', 1 << 20) or alternatives(inside)):
                continue
            if wanted or len(out) < schema.get('minProperties', 0) or (depth < 5 and self.random.random() < 0.3):
                try:
                    out[name] = self.value(inside, depth + 1)
                except NotGenerated:
                    if wanted:
                        raise
        extra = schema.get('additionalProperties')
        if isinstance(extra, dict) and (depth < 5 or schema.get('minProperties')):
            for count in range(max(1, schema.get('minProperties', 1))):
                out[f'key{count}'] = self.value(extra, depth + 1)
        return out

    def value(self, schema, depth):
        if schema.get('x-kubernetes-int-or-string'):
            return 1
        kind = schema.get('type')
        if kind == 'object' or (kind is None and 'properties' in schema):
            return self.object(schema, depth)
        if kind == 'array':
            count = schema.get('minItems', 1 if depth < 5 else 0)
            return [self.value(schema['items'], depth + 1) for _ in range(count)]
        if kind == 'boolean':
            return True
        if kind in ('integer', 'number'):
            return self.number(schema)
        return self.string(schema) if kind == 'string' else {}


def whole(sent, got):
    """What was sent is there; defaults may have been added, nulls dropped."""
    if isinstance(sent, dict):
        return isinstance(got, dict) and all(
            value is None or (name in got and whole(value, got[name])) for name, value in sent.items())
    if isinstance(sent, list):
        return isinstance(got, list) and len(sent) == len(got) and all(map(whole, sent, got))
    return sent == got


def apply_all(server, files):
    names, problems, begin = {}, [], time.monotonic()
    for file in files:
        body = file.read_bytes()
        name = json.loads(body)['metadata']['name']
        code, answer = server.call(
            'PATCH', f'/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}?fieldManager=suite&force=true',
            body, 'application/apply-patch+yaml')
        if code not in (200, 201):
            problems.append(f'{file.name}: {code} {answer.get("message")}')
        names[name] = True
    while time.monotonic() < begin + 60:
        items = server.call('GET', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions')[1]['items']
        ready = [one for one in items if any(
            c['type'] == 'Established' and c['status'] == 'True' for c in one['status'].get('conditions') or [])]
        if len({one['metadata']['name'] for one in ready} & set(names)) == len(names):
            break
        time.sleep(0.01)
    else:
        problems.append('not all are Established within 60 s')
    print(f'{len(files)} definitions applied, {len(names)} names Established after {time.monotonic() - begin:.2f} s')
    return [one for one in items if one['metadata']['name'] in names], problems


def round_trip(server, definition, version):
    spec = definition['spec']
    schema = version['schema']['openAPIV3Schema']
    base = f'/apis/{spec["group"]}/{version["name"]}/'
    base += ('namespaces/default/' if spec['scope'] == 'Namespaced' else '') + spec['names']['plural']
    object_ = Generator(f'{definition["metadata"]["name"]}/{version["name"]}').object(
        {**schema, 'properties': {k: v for k, v in schema.get('properties', {}).items()
                                  if k not in ('apiVersion', 'kind', 'metadata', 'status')}}, 0)
    object_.update({'apiVersion': f'{spec["group"]}/{version["name"]}', 'kind': spec['names']['kind'],
                    'metadata': {'name': 'generated'}})
    if definition['metadata']['name'] == 'queues.scheduling.run.ai':
        # Admission asks for more than the schema, as KAI's webhook does.
        object_.setdefault('spec', {}).setdefault('resources', {})
    if definition['metadata']['name'] == 'topologies.kai.scheduler':
        # The CRD's rules are in CEL, and admission holds an alias to them too: no two names are the same.
        for number, level in enumerate(object_['spec']['levels']):
            level.update({name: f'{name}-{number}' for name in ('nodeLabel', 'alias') if name in level})
    code, answer = server.call('POST', base, json.dumps(object_))
    if code != 201:
        return f'{code} {answer.get("message")}'
    code, got = server.call('GET', base + '/generated')
    server.call('DELETE', base + '/generated')
    return '' if code == 200 and whole(object_, got) else f'{code}: what was sent is not whole: {json.dumps(object_)[:300]}'


def main():
    files = sorted(pathlib.Path(sys.argv[1]).glob('*.json'))
    server = Server(sys.argv[2])
    definitions, problems = apply_all(server, files)
    passed, skipped, begin = len(files) - len(problems), 0, time.monotonic()
    for definition in definitions:
        for version in definition['spec']['versions']:
            if not version['served']:
                continue
            name = f'{definition["metadata"]["name"]}/{version["name"]}'
            try:
                wrong = round_trip(server, definition, version)
            except NotGenerated as pattern:
                skipped += 1
                print(f'skip  {name}: no word fits {pattern}')
                continue
            passed += not wrong
            problems += [f'{name}: {wrong}'] if wrong else []
    for problem in problems:
        print('FAIL ', problem[:600])
    print(f'objects of all served versions after {time.monotonic() - begin:.2f} s')
    print(f'{passed} passed, {len(problems)} failed, {skipped} skipped')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
