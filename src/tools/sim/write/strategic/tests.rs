use serde_json::json;

use super::*;

fn resource(kind: &str) -> std::sync::Arc<Resource> {
    let found = kinds::builtin().find(|found| found.resource.kind == kind);
    found.expect("a built-in kind").resource
}

fn merged(kind: &str, mut object: Value, patch: Value) -> Result<Value, u16> {
    let Value::Object(patch) = patch else {
        panic!("a patch is an object")
    };
    let merged = merge(&resource(kind), &mut object, patch);
    merged.map(|()| object).map_err(|status| status.code)
}

#[test]
fn lists_of_a_pod_merge_by_their_strategy() {
    let c = |name: &str, image: &str| json!({"name": name, "image": image});
    let two = || json!([c("a", "1"), c("b", "2")]);
    let rows = [
        // Items are merged by key, and new items are added at the end.
        (json!([c("b", "3")]), json!([c("a", "1"), c("b", "3")])),
        (
            json!([c("n", "3")]),
            json!([c("a", "1"), c("b", "2"), c("n", "3")]),
        ),
        (
            json!([{"name": "a", "image": null}]),
            json!([{"name": "a"}, c("b", "2")]),
        ),
        (
            json!([{"name": "n", "image": null}]),
            json!([c("a", "1"), c("b", "2"), {"name": "n"}]),
        ),
        // Directives delete an item or replace the list.
        (
            json!([{"name": "a", "$patch": "delete"}]),
            json!([c("b", "2")]),
        ),
        (
            json!([c("n", "3"), {"$patch": "replace"}]),
            json!([c("n", "3")]),
        ),
        (json!([]), two()),
    ];
    for (patch, expected) in rows {
        let patch = json!({"spec": {"containers": patch}});
        let object = json!({"spec": {"containers": two()}});
        let got = merged("Pod", object, patch.clone()).expect("the patch applies");
        assert_eq!(got["spec"]["containers"], expected, "{patch}");
    }
}

#[test]
fn element_order_is_applied() {
    let rows = [
        (
            json!(["a", "b", "c"]),
            json!(["c", "a"]),
            json!(["b", "c", "a"]),
        ),
        (
            json!(["a", "b", "c"]),
            json!(["a", "c"]),
            json!(["a", "b", "c"]),
        ),
        (json!(["a"]), json!(["n", "a"]), json!(["n", "a"])),
        (json!([]), json!(["n", "a"]), json!(["n", "a"])),
        (
            json!(["x", "a", "y"]),
            json!(["n", "a"]),
            json!(["n", "x", "a", "y"]),
        ),
    ];
    let named = |names: &Value| -> Vec<Value> {
        let names = names.as_array().expect("names").iter();
        names.map(|name| json!({"name": name})).collect()
    };
    for (before, order, expected) in rows {
        let object = json!({"spec": {"volumes": named(&before)}});
        let fresh = order.as_array().expect("names").contains(&json!("n"));
        let patch = json!({"spec": {
            "volumes": if fresh { named(&json!(["a", "n"])) } else { Vec::new() },
            "$setElementOrder/volumes": named(&order),
        }});
        let got = merged("Pod", object, patch).expect("the patch applies");
        assert_eq!(
            got["spec"]["volumes"],
            Value::from(named(&expected)),
            "{before} {order}"
        );
    }
}

#[test]
fn maps_and_scalars_merge() {
    let rows = [
        (
            "Pod",
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"finalizers": ["b", "c"]}}),
            Ok(json!({"metadata": {"finalizers": ["a", "b", "c"]}})),
        ),
        (
            "Pod",
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
            Ok(json!({"metadata": {"finalizers": ["b"]}})),
        ),
        (
            "Pod",
            json!({"spec": {"tolerations": [{"key": "a"}]}}),
            json!({"spec": {"tolerations": [{"key": "b"}]}}),
            Ok(json!({"spec": {"tolerations": [{"key": "b"}]}})),
        ),
        (
            "Service",
            json!({"spec": {"ports": [{"port": 80, "name": "a"}]}}),
            json!({"spec": {"ports": [{"port": 80, "name": "b"}, {"port": 81}]}}),
            Ok(json!({"spec": {"ports": [{"port": 80, "name": "b"}, {"port": 81}]}})),
        ),
        (
            "Deployment",
            json!({"spec": {"template": {"spec": {"initContainers": [
                {"name": "a", "env": [{"name": "X", "value": "1"}], "ports": [{"containerPort": 1}]},
            ]}}}}),
            json!({"spec": {"template": {"spec": {"initContainers": [
                {"name": "a", "env": [{"name": "X", "value": "2"}], "ports": [{"containerPort": 2}]},
            ]}}}}),
            Ok(json!({"spec": {"template": {"spec": {"initContainers": [
                {"name": "a", "env": [{"name": "X", "value": "2"}],
                 "ports": [{"containerPort": 1}, {"containerPort": 2}]},
            ]}}}})),
        ),
        (
            "Deployment",
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            Ok(json!({"spec": {"strategy": {"type": "Recreate"}}})),
        ),
        (
            "Node",
            json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "R"}]}}),
            json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
            Ok(json!({"status": {"conditions": [
                {"type": "Ready", "status": "False", "reason": "R"},
            ]}})),
        ),
        (
            "CustomResourceDefinition",
            json!({"status": {"conditions": [{"type": "A", "status": "True"}]}}),
            json!({"status": {"conditions": [{"type": "B"}]}}),
            Ok(json!({"status": {"conditions": [{"type": "B"}]}})),
        ),
        (
            "ConfigMap",
            json!({"data": {"a": "1"}}),
            json!({"data": {"$patch": "replace", "b": "2"}}),
            Ok(json!({"data": {"b": "2"}})),
        ),
        (
            "ConfigMap",
            json!({"data": {"a": "1"}}),
            json!({"data": {"$patch": "delete"}}),
            Ok(json!({"data": {}})),
        ),
        (
            "ConfigMap",
            json!({}),
            json!({"data": {"a": null, "b": "2", "$patch": "merge"}}),
            Ok(json!({"data": {"b": "2"}})),
        ),
        (
            "ConfigMap",
            json!({"data": {}}),
            json!({"data": {"$patch": "x"}}),
            Err(400),
        ),
        (
            "ConfigMap",
            json!({"data": {}}),
            json!({"data": {"$x": "y"}}),
            Err(400),
        ),
        (
            "Pod",
            json!({"spec": {"containers": []}}),
            json!({"spec": {"containers": [{"image": "i"}]}}),
            Err(400),
        ),
    ];
    for (kind, object, patch, expected) in rows {
        assert_eq!(
            merged(kind, object, patch.clone()),
            expected,
            "{kind} {patch}"
        );
    }
}
