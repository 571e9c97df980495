"""The official Python client against the server of $KUBECONFIG: typed and dynamic clients, watch, the
three patches, server-side apply, a custom kind, leader election. One line per step; the last is
'N passed, N failed'. One thread, but for the elector."""
import threading
import time

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.configmaplock import ConfigMapLock

NAMESPACE = 'python'


def refused(code, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except ApiException as error:
        assert error.status == code, f'{error.status} instead of {code}: {error.body}'
        return error
    raise AssertionError(f'{code} was expected, nothing was refused')


def until(what, check, seconds=15):
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def crud(core):
    made = core.create_namespaced_config_map(
        NAMESPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(name='a', labels={'x': 'y'}), data={'k': 'v'}))
    assert made.metadata.uid and made.data == {'k': 'v'}
    refused(409, core.create_namespaced_config_map, NAMESPACE, {'metadata': {'name': 'a'}})
    made.data['k'] = 'w'
    made.metadata.managed_fields = None
    assert core.replace_namespaced_config_map('a', NAMESPACE, made).data['k'] == 'w'
    refused(409, core.replace_namespaced_config_map, 'a', NAMESPACE, made)
    assert [one.metadata.name for one in core.list_namespaced_config_map(NAMESPACE, label_selector='x=y').items] == ['a']
    page = core.list_namespace(limit=2)
    assert len(page.items) == 2 and page.metadata._continue and page.metadata.remaining_item_count >= 1
    core.delete_namespaced_config_map('a', NAMESPACE)
    refused(404, core.read_namespaced_config_map, 'a', NAMESPACE)
    error = refused(422, core.create_namespaced_service, NAMESPACE,
                    client.V1Service(metadata=client.V1ObjectMeta(name='s'), spec=client.V1ServiceSpec(ports=[])))
    assert 'spec.ports: Required value' in error.body, error.body


def patches(core):
    core.create_namespaced_config_map(NAMESPACE, {'metadata': {'name': 'p'}, 'data': {'a': '1'}})
    core.patch_namespaced_config_map('p', NAMESPACE, {'data': {'b': '2'}})
    core.patch_namespaced_config_map('p', NAMESPACE, [{'op': 'add', 'path': '/data/c', 'value': '3'}])
    assert core.read_namespaced_config_map('p', NAMESPACE).data == {'a': '1', 'b': '2', 'c': '3'}


def watches(core):
    version = core.list_namespaced_secret(NAMESPACE).metadata.resource_version
    core.create_namespaced_secret(NAMESPACE, {'metadata': {'name': 'w'}, 'stringData': {'a': 'b'}})
    core.patch_namespaced_secret('w', NAMESPACE, {'metadata': {'labels': {'a': 'b'}}})
    core.delete_namespaced_secret('w', NAMESPACE)
    seen = [event['type'] for event in watch.Watch().stream(
        core.list_namespaced_secret, NAMESPACE, resource_version=version, timeout_seconds=2)]
    assert seen == ['ADDED', 'MODIFIED', 'DELETED'], seen


def workloads(core):
    apps = client.AppsV1Api()
    body = {'metadata': {'name': 'web'}, 'spec': {
        'replicas': 2, 'selector': {'matchLabels': {'app': 'web'}},
        'template': {'metadata': {'labels': {'app': 'web'}}, 'spec': {'containers': [{'name': 'c', 'image': 'nginx'}]}}}}
    apps.create_namespaced_deployment(NAMESPACE, body)
    until('two pods', lambda: len(core.list_namespaced_pod(NAMESPACE, label_selector='app=web').items) == 2)
    apps.patch_namespaced_deployment_scale('web', NAMESPACE, {'spec': {'replicas': 1}})
    until('one pod', lambda: len(core.list_namespaced_pod(NAMESPACE, label_selector='app=web').items) == 1)
    apps.delete_namespaced_deployment('web', NAMESPACE, propagation_policy='Foreground')
    until('no deployment', lambda: not apps.list_namespaced_deployment(NAMESPACE).items)


def custom_kind(core):
    del core
    definition = {
        'apiVersion': 'apiextensions.k8s.io/v1', 'kind': 'CustomResourceDefinition',
        'metadata': {'name': 'gears.py.example.com'},
        'spec': {'group': 'py.example.com', 'scope': 'Namespaced', 'names': {'plural': 'gears', 'kind': 'Gear'},
                 'versions': [{'name': 'v1', 'served': True, 'storage': True, 'schema': {'openAPIV3Schema': {
                     'type': 'object', 'properties': {'spec': {'type': 'object', 'properties': {
                         'teeth': {'type': 'integer', 'maximum': 99}, 'metal': {'type': 'string', 'default': 'steel'}}}}}}}]}}
    extensions = client.ApiextensionsV1Api()
    extensions.create_custom_resource_definition(definition)
    until('Established', lambda: any(
        one.type == 'Established' and one.status == 'True'
        for one in extensions.read_custom_resource_definition('gears.py.example.com').status.conditions or []))
    gears = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version='py.example.com/v1', kind='Gear')
    body = {'apiVersion': 'py.example.com/v1', 'kind': 'Gear', 'metadata': {'name': 'g'}, 'spec': {'teeth': 12}}
    made = gears.create(body=body, namespace=NAMESPACE)
    assert made.spec.metal == 'steel'
    body['spec']['teeth'] = 100
    try:
        gears.server_side_apply(body=body, namespace=NAMESPACE, name='g', field_manager='py', force_conflicts=True)
        raise AssertionError('100 teeth were accepted')
    except dynamic.exceptions.UnprocessibleEntityError:
        pass
    body['spec']['teeth'] = 13
    applied = gears.server_side_apply(body=body, namespace=NAMESPACE, name='g', field_manager='py', force_conflicts=True)
    assert applied.spec.teeth == 13
    listed = client.CustomObjectsApi().list_namespaced_custom_object('py.example.com', 'v1', NAMESPACE, 'gears')
    assert [one['metadata']['name'] for one in listed['items']] == ['g']


def reviews(core):
    del core
    asked = {'spec': {'resourceAttributes': {'verb': 'delete', 'resource': 'pods', 'namespace': NAMESPACE}}}
    assert client.AuthorizationV1Api().create_self_subject_access_review(asked).status.allowed
    assert client.VersionApi().get_code().minor == '36'


def election(core):
    del core
    led = threading.Event()
    lock = ConfigMapLock('leader', NAMESPACE, 'python-client')
    elector = leaderelection.LeaderElection(electionconfig.Config(
        lock, lease_duration=5, renew_deadline=3, retry_period=1, onstarted_leading=led.set, onstopped_leading=None))
    threading.Thread(target=elector.run, name='elector', daemon=True).start()
    assert led.wait(15), 'nobody leads'


def main():
    config.load_kube_config()
    core = client.CoreV1Api()
    core.create_namespace({'metadata': {'name': NAMESPACE}})
    until('the default service account', lambda: core.list_namespaced_service_account(NAMESPACE).items)
    passed = failed = 0
    for step in (crud, patches, watches, workloads, custom_kind, reviews, election):
        try:
            step(core)
            passed += 1
            print('ok    python:', step.__name__)
        except Exception as error:  # each step is one test
            failed += 1
            print(f'FAIL  python: {step.__name__}: {type(error).__name__}: {error}')
    print(f'{passed} passed, {failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    raise SystemExit(main())
