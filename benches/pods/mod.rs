//! Pods of a given size, encoded as an API server encodes them, in both formats.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use kubefan::api::{GroupVersionResource, Resource, SelectableFields, WireFormat};
use kubefan_tools::workload;
use kubefan_tools::workload::{Operation, Workload};
use serde_json::{Value, json};

/// Returns the fields of pods that field selectors may use.
pub(crate) fn fields() -> Arc<SelectableFields> {
    Arc::new(SelectableFields::for_resource(
        &Resource {
            gvr: GroupVersionResource::new("", "v1", "pods"),
            kind: "Pod".to_owned(),
            singular: "pod".to_owned(),
            short_names: Vec::new(),
            namespaced: true,
            verbs: Vec::new(),
        },
        None,
    ))
}

/// Returns `count` pods of the synthetic workload. As an item of a JSON list, the pod at index `n`
/// has `size(n)` bytes.
pub(crate) fn pods(count: usize, size: impl Fn(usize) -> usize) -> Vec<Value> {
    let mut cluster = Workload::new(workload::Config {
        nodes: count.div_ceil(30),
        pods: count,
        seed: 7,
        now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_750_000_000),
    });
    let pods = cluster.initial().filter_map(|operation| match operation {
        Operation::Create { target, object } if target.resource == "pods" => Some(object),
        _ => None,
    });
    let pods: Vec<_> = pods.collect();
    let pods = pods.iter().cycle().take(count).enumerate();
    pods.map(|(place, pod)| sized(pod, place, size(place)))
        .collect()
}

fn sized(pod: &Value, place: usize, size: usize) -> Value {
    let mut pod = pod.clone();
    let members = pod.as_object_mut().expect("a pod");
    members.shift_remove("kind");
    members.shift_remove("apiVersion");
    let metadata = &mut pod["metadata"];
    metadata["name"] = json!(format!(
        "{}-{place:05}",
        metadata["name"].as_str().unwrap_or("pod")
    ));
    metadata["resourceVersion"] = json!((1_000 + place).to_string());
    for part in [
        "/metadata/managedFields",
        "/spec/volumes",
        "/status/conditions",
    ] {
        if length(&pod) + 60 > size
            && let Some(part) = pod.pointer_mut(part)
        {
            *part = json!([]);
        }
    }
    if length(&pod) + 60 > size {
        let container = &pod["spec"]["containers"][0];
        pod["spec"]["containers"] =
            json!([{"name": container["name"], "image": container["image"]}]);
        pod["status"]["containerStatuses"] = json!([]);
    }
    while length(&pod) + 1_200 < size {
        let managed = pod["metadata"]["managedFields"].as_array_mut();
        let managed = managed.expect("a list of writers");
        managed.push(managed_fields(managed.len()));
    }
    let missing = size.saturating_sub(length(&pod) + 13);
    pod["metadata"]["annotations"]["padding"] = json!("x".repeat(missing));
    pod
}

fn managed_fields(number: usize) -> Value {
    let conditions: serde_json::Map<_, _> = (0..4)
        .map(|condition| {
            let owned = json!({
                ".": {}, "f:lastProbeTime": {}, "f:lastTransitionTime": {}, "f:status": {}, "f:type": {},
            });
            (format!("k:{{\"type\":\"Condition{condition}\"}}"), owned)
        })
        .collect();
    json!({
        "manager": format!("manager-{number}"), "operation": "Update", "apiVersion": "v1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {"f:conditions": conditions, "f:phase": {}, "f:podIPs": {}}},
        "subresource": "status",
    })
}

fn length(pod: &Value) -> usize {
    text(pod).len()
}

fn text(pod: &Value) -> String {
    serde_json::to_string(pod).expect("plain data")
}

/// Returns the body of a list of the pods.
pub(crate) fn list(pods: &[Value], format: WireFormat) -> Bytes {
    match format {
        WireFormat::Json => {
            let items: Vec<_> = pods.iter().map(text).collect();
            let head = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9000000"},"items":["#;
            [head, &items.join(","), "]}\n"].concat().into()
        }
        WireFormat::Protobuf => {
            let mut list = field(1, &field(2, b"9000000"));
            for pod in pods {
                list.extend(field(2, &message(pod)));
            }
            envelope(&list, "PodList").into()
        }
    }
}

/// Returns one watch frame for each pod.
pub(crate) fn frames(pods: &[Value], format: WireFormat, event_type: &str) -> Vec<Bytes> {
    let frame = |pod: &Value| match format {
        WireFormat::Json => {
            let body = text(pod);
            let head =
                format!(r#"{{"type":"{event_type}","object":{{"kind":"Pod","apiVersion":"v1","#);
            [&head, &body[1..], "}\n"].concat().into()
        }
        WireFormat::Protobuf => {
            let object = field(1, &envelope(&message(pod), "Pod"));
            let event = [field(1, event_type.as_bytes()), field(2, &object)].concat();
            let length = u32::try_from(event.len()).expect("a small event");
            [&length.to_be_bytes(), event.as_slice()].concat().into()
        }
    };
    pods.iter().map(frame).collect()
}

fn envelope(message: &[u8], kind: &str) -> Vec<u8> {
    let types = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
    let parts = [
        b"k8s\0".to_vec(),
        field(1, &types),
        field(2, message),
        field(3, b""),
        field(4, b""),
    ];
    parts.concat()
}

/// Returns the pod as a protobuf message. Fields that kubefan reads have their real field numbers,
/// and the other fields have arbitrary numbers.
fn message(pod: &Value) -> Vec<u8> {
    let metadata = &pod["metadata"];
    let mut meta = Vec::new();
    for (number, member) in [
        (1, "name"),
        (3, "namespace"),
        (5, "uid"),
        (6, "resourceVersion"),
    ] {
        meta.extend(field(
            number,
            metadata[member].as_str().unwrap_or_default().as_bytes(),
        ));
    }
    for (number, member) in [(11, "labels"), (12, "annotations")] {
        for (key, value) in metadata[member].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            let entry = [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
            meta.extend(field(number, &entry));
        }
    }
    for writer in metadata["managedFields"].as_array().into_iter().flatten() {
        meta.extend(field(
            17,
            &field(7, &field(1, text(&writer["fieldsV1"]).as_bytes())),
        ));
    }
    let texts = |parent: &Value, known: &[(u32, &str)]| {
        let known = known.iter().filter_map(|(number, member)| {
            Some(field(*number, parent[*member].as_str()?.as_bytes()))
        });
        known.collect::<Vec<_>>().concat()
    };
    let mut spec = texts(
        &pod["spec"],
        &[
            (3, "restartPolicy"),
            (8, "serviceAccountName"),
            (10, "nodeName"),
            (19, "schedulerName"),
        ],
    );
    let mut status = texts(
        &pod["status"],
        &[(1, "phase"), (6, "podIP"), (11, "nominatedNodeName")],
    );
    if pod["spec"]["hostNetwork"] == true {
        spec.extend([11 << 3, 1]);
    }
    for address in pod["status"]["podIPs"].as_array().into_iter().flatten() {
        let ip = address["ip"].as_str().unwrap_or_default();
        status.extend(field(12, &field(1, ip.as_bytes())));
    }
    rest(&pod["spec"], &mut spec);
    rest(&pod["status"], &mut status);
    [field(1, &meta), field(2, &spec), field(3, &status)].concat()
}

fn rest(value: &Value, message: &mut Vec<u8>) {
    let mut nested = |value: &Value| {
        let mut inner = Vec::new();
        rest(value, &mut inner);
        message.extend(field(60, &inner));
    };
    match value {
        Value::Object(members) => members.values().for_each(&mut nested),
        Value::Array(elements) => elements.iter().for_each(&mut nested),
        Value::String(text) => message.extend(field(61, text.as_bytes())),
        other => message.extend(field(61, other.to_string().as_bytes())),
    }
}

fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut field = Vec::with_capacity(content.len() + 12);
    for mut number in [u64::from(number) << 3 | 2, content.len() as u64] {
        while number >= 0x80 {
            field.push(number as u8 | 0x80);
            number >>= 7;
        }
        field.push(number as u8);
    }
    field.extend_from_slice(content);
    field
}
