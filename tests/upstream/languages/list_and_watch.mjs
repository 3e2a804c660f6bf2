// Lists the ConfigMaps of a namespace with the official JavaScript client, and watches them.
//
// Usage: node list_and_watch.mjs KUBECONFIG NAMESPACE
//
// Prints `listed` with the number of objects, then the name of each object that the watch adds, and
// ends after the object `last`.

import { CoreV1Api, KubeConfig, Watch } from '@kubernetes/client-node';

const [kubeconfig, namespace] = process.argv.slice(2);
const config = new KubeConfig();
config.loadFromFile(kubeconfig);
const api = config.makeApiClient(CoreV1Api);
const listed = await api.listNamespacedConfigMap({ namespace, resourceVersion: '0' });
console.log('listed', listed.items.length);
await new Watch(config).watch(
  `/api/v1/namespaces/${namespace}/configmaps`,
  { resourceVersion: listed.metadata.resourceVersion, timeoutSeconds: 30 },
  (type, object) => {
    if (type === 'ADDED') {
      console.log(object.metadata.name);
    }
    if (object.metadata.name === 'last') {
      process.exit(0);
    }
  },
  (error) => {
    console.error('the watch ended', error);
    process.exit(1);
  },
);
