// The official JavaScript client against the server of $KUBECONFIG: typed and generic clients, watch,
// informer, patches, server-side apply, a custom kind. One line per step; the last is
// 'N passed, N failed'.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import * as k8s from '@kubernetes/client-node';

const namespace = 'node-client';
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);

async function until(what, check, milliseconds = 15000) {
  for (const end = Date.now() + milliseconds; !(await check()); await sleep(50)) {
    assert.ok(Date.now() < end, what);
  }
}

async function refused(code, promise) {
  await assert.rejects(promise, (error) => error.code === code);
}

async function crud() {
  const made = await core.createNamespacedConfigMap({
    namespace, body: { metadata: { name: 'a', labels: { x: 'y' } }, data: { k: 'v' } } });
  assert.ok(made.metadata.uid);
  await refused(409, core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'a' } } }));
  const replaced = await core.replaceNamespacedConfigMap({
    name: 'a', namespace, body: { metadata: { name: 'a' }, data: { k: 'w' } } });
  assert.equal(replaced.data.k, 'w');
  const list = await core.listNamespacedConfigMap({ namespace, fieldSelector: 'metadata.name=a' });
  assert.equal(list.items.length, 1);
  await core.deleteNamespacedConfigMap({ name: 'a', namespace });
  await refused(404, core.readNamespacedConfigMap({ name: 'a', namespace }));
  await refused(422, core.createNamespacedPod({ namespace, body: { metadata: { name: 'p' }, spec: { containers: [] } } }));
}

async function patches() {
  await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'p' }, data: { a: '1' } } });
  const name = { name: 'p', namespace };
  await core.patchNamespacedConfigMap(
    { ...name, body: [{ op: 'add', path: '/data/b', value: '2' }] },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.JsonPatch));
  await core.patchNamespacedConfigMap(
    { ...name, body: { data: { c: '3' } } }, k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch));
  await core.patchNamespacedConfigMap(
    { ...name, body: { data: { a: null } } },
    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.StrategicMergePatch));
  assert.deepEqual((await core.readNamespacedConfigMap(name)).data, { b: '2', c: '3' });
  const body = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'applied', namespace }, data: { x: '1' } };
  const applied = await objects.patch(body, undefined, undefined, 'node', true, k8s.PatchStrategy.ServerSideApply);
  assert.equal(applied.data.x, '1');
  assert.equal(applied.metadata.managedFields[0].manager, 'node');
}

async function watches() {
  const seen = [];
  const version = (await core.listNamespacedSecret({ namespace })).metadata.resourceVersion;
  const stream = await new k8s.Watch(config).watch(
    `/api/v1/namespaces/${namespace}/secrets`, { resourceVersion: version },
    (type, object) => seen.push(`${type} ${object.metadata.name}`), () => {});
  await core.createNamespacedSecret({ namespace, body: { metadata: { name: 'w' }, stringData: { a: 'b' } } });
  await core.deleteNamespacedSecret({ name: 'w', namespace });
  await until(`two events, got ${seen}`, () => seen.length === 2);
  stream.abort();
  assert.deepEqual(seen, ['ADDED w', 'DELETED w']);
}

async function informer() {
  const path = `/api/v1/namespaces/${namespace}/configmaps`;
  const live = k8s.makeInformer(config, path, () => core.listNamespacedConfigMap({ namespace }));
  await live.start();
  await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'informed' } } });
  await until('the informer sees the object', () => live.get('informed', namespace) !== undefined);
  await live.stop();
}

async function workloads() {
  await apps.createNamespacedDeployment({ namespace, body: {
    metadata: { name: 'web' },
    spec: { replicas: 1, selector: { matchLabels: { app: 'web' } },
      template: { metadata: { labels: { app: 'web' } }, spec: { containers: [{ name: 'c', image: 'nginx' }] } } } } });
  const pods = () => core.listNamespacedPod({ namespace, labelSelector: 'app=web' });
  await until('a pod', async () => (await pods()).items.length === 1);
  // The controller writes the status meanwhile: a conflict is read again, as clients do.
  await until('scaled', async () => {
    const scale = await apps.readNamespacedDeploymentScale({ name: 'web', namespace });
    scale.spec.replicas = 2;
    return apps.replaceNamespacedDeploymentScale({ name: 'web', namespace, body: scale })
      .then(() => true, (error) => { if (error.code !== 409) throw error; return false; });
  });
  await until('two pods', async () => (await pods()).items.length === 2);
  await apps.deleteNamespacedDeployment({ name: 'web', namespace });
  await until('no pods', async () => (await pods()).items.length === 0);
}

async function customKind() {
  await config.makeApiClient(k8s.ApiextensionsV1Api).createCustomResourceDefinition({ body: {
    metadata: { name: 'bolts.js.example.com' },
    spec: { group: 'js.example.com', scope: 'Namespaced', names: { plural: 'bolts', kind: 'Bolt' },
      versions: [{ name: 'v1', served: true, storage: true, schema: { openAPIV3Schema: {
        type: 'object', properties: { spec: { type: 'object', properties: {
          size: { type: 'integer', minimum: 1 }, thread: { type: 'string', _default: 'M' } } } } } } }] } } });
  const where = { group: 'js.example.com', version: 'v1', namespace, plural: 'bolts' };
  await until('the kind is served', () => custom.listNamespacedCustomObject(where).then(() => true, () => false));
  const body = { apiVersion: 'js.example.com/v1', kind: 'Bolt', metadata: { name: 'b' }, spec: { size: 3 } };
  const made = await custom.createNamespacedCustomObject({ ...where, body });
  assert.equal(made.spec.thread, 'M');
  await refused(422, custom.createNamespacedCustomObject({
    ...where, body: { ...body, metadata: { name: 'c' }, spec: { size: 0 } } }));
  await custom.deleteNamespacedCustomObject({ ...where, name: 'b' });
}

await core.createNamespace({ body: { metadata: { name: namespace } } });
await until('the default service account',
  async () => (await core.listNamespacedServiceAccount({ namespace })).items.length > 0);
let passed = 0;
let failed = 0;
for (const step of [crud, patches, watches, informer, workloads, customKind]) {
  try {
    await step();
    passed += 1;
    console.log(`ok    node: ${step.name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  node: ${step.name}: ${error}`);
  }
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed ? 1 : 0);
