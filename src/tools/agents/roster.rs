//! The list of the agents, and what each agent reads.

use kubefan_core::api::GroupVersionResource;

/// What a watch selects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Watched {
    /// The resource; all of its namespaces are watched.
    pub gvr: GroupVersionResource,
    /// The field selector; empty for all objects.
    pub field_selector: String,
}

/// A simulated client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Agent {
    /// Holds these watches open.
    Watcher(Vec<Watched>),
    /// Lists this path again and again.
    Dashboard(&'static str),
}

/// One agent of every `DASHBOARD_EVERY` is a dashboard, and one of every `CONTROLLER_EVERY` a
/// controller. The others are node agents.
const DASHBOARD_EVERY: usize = 30;
const CONTROLLER_EVERY: usize = 20;

/// What the kinds of node agents watch: kubelets, service proxies, network agents, log collectors
/// and monitoring. `pod` selects the pods of the agent's node, and `node` selects the node itself.
const NODE_AGENTS: [&[&str]; 5] = [
    &["pod", "node", "services"],
    &["node", "services", "endpointslices"],
    &["pod", "nodes", "namespaces"],
    &["pod", "namespaces"],
    &["pod", "node", "endpointslices"],
];

/// What the kinds of controllers watch: all objects of each resource.
const CONTROLLERS: [&[&str]; 8] = [
    &["nodes", "pods"],
    &["deployments", "replicasets"],
    &["services", "endpointslices"],
    &["nodes", "leases"],
    &["jobs", "pods"],
    &["statefulsets"],
    &["daemonsets", "nodes"],
    &["configmaps", "namespaces"],
];

/// What the dashboards list: the most recent state, as Tables, like `kubectl get`.
const DASHBOARDS: [&str; 3] = [
    "/api/v1/nodes?limit=500",
    "/api/v1/namespaces/kube-system/pods?limit=500",
    "/apis/apps/v1/deployments?limit=500",
];

/// Returns `count` agents: some dashboards and controllers, and node agents on all `nodes` in turn.
pub(super) fn roster(count: usize, nodes: &[String]) -> Vec<Agent> {
    let (mut dashboards, mut controllers, mut node_agents) = (0, 0, 0);
    let next = |number: &mut usize| std::mem::replace(number, *number + 1);
    let agent = |index: usize| {
        if index % DASHBOARD_EVERY == 1 {
            let kind = next(&mut dashboards) % DASHBOARDS.len();
            return Agent::Dashboard(DASHBOARDS[kind]);
        }
        if index.is_multiple_of(CONTROLLER_EVERY) {
            let kind = next(&mut controllers) % CONTROLLERS.len();
            return Agent::Watcher(watches(CONTROLLERS[kind], ""));
        }
        let number = next(&mut node_agents);
        let kind = number % NODE_AGENTS.len();
        let node = &nodes[number / NODE_AGENTS.len() % nodes.len()];
        Agent::Watcher(watches(NODE_AGENTS[kind], node))
    };
    (0..count).map(agent).collect()
}

fn watches(names: &[&str], node: &str) -> Vec<Watched> {
    let watched = |name: &&str| {
        let (resource, field_selector) = match *name {
            "pod" => ("pods", format!("spec.nodeName={node}")),
            "node" => ("nodes", format!("metadata.name={node}")),
            all => (all, String::new()),
        };
        let group = match resource {
            "deployments" | "replicasets" | "statefulsets" | "daemonsets" => "apps",
            "jobs" => "batch",
            "leases" => "coordination.k8s.io",
            "endpointslices" => "discovery.k8s.io",
            _ => "",
        };
        Watched {
            gvr: GroupVersionResource::new(group, "v1", resource),
            field_selector,
        }
    };
    names.iter().map(watched).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_of_all_kinds_are_on_all_nodes() {
        let nodes: Vec<_> = (0..10).map(|number| format!("node-{number}")).collect();
        let agents = roster(160, &nodes);
        assert_eq!(agents.len(), 160);
        let dashboards = agents.iter().filter_map(|agent| match agent {
            Agent::Dashboard(path) => Some(*path),
            Agent::Watcher(_) => None,
        });
        assert_eq!(
            dashboards.collect::<Vec<_>>(),
            [DASHBOARDS, DASHBOARDS].concat()
        );
        let watches: Vec<_> = agents
            .iter()
            .filter_map(|agent| match agent {
                Agent::Watcher(watches) => Some(watches),
                Agent::Dashboard(_) => None,
            })
            .collect();
        for kind in CONTROLLERS {
            let expected = super::watches(kind, "");
            assert!(watches.contains(&&expected), "{expected:?}");
        }
        for node in &nodes {
            for kind in NODE_AGENTS {
                let expected = super::watches(kind, node);
                assert!(watches.contains(&&expected), "{expected:?}");
            }
        }
    }

    #[test]
    fn few_agents_are_of_several_kinds() {
        assert!(roster(0, &["a".to_owned()]).is_empty());
        let agents = roster(3, &["a".to_owned()]);
        assert!(matches!(
            &agents[..],
            [Agent::Watcher(_), Agent::Dashboard(_), Agent::Watcher(_)]
        ));
    }
}
