//! Objects that are as long as the API server permits: printing takes a time in proportion to their
//! length. A printer that compares each item with each other would not end within a test's patience.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::codec::table::Printer;

const MANY: usize = 20_000;

fn cells(api_version: &str, kind: &str, object: &Value) -> Vec<Value> {
    let printer = Printer::built_in(api_version, kind).expect("a printer");
    printer.cells(object, SystemTime::now())
}

#[test]
fn many_addresses_with_many_ports_are_counted() {
    let addresses: Vec<_> = (0..MANY).map(|_| json!({ "ip": "10.0.0.1" })).collect();
    let ports: Vec<_> = (1..=MANY).map(|port| json!({ "port": port })).collect();
    let endpoints = json!({ "subsets": [{ "addresses": addresses, "ports": ports }] });
    let shown = &cells("v1", "Endpoints", &endpoints)[1];
    let more = MANY * MANY - 3;
    let first = ["10.0.0.1:1"; 3].join(",");
    assert_eq!(*shown, format!("{first} + {more} more..."));
}

#[test]
fn many_resources_of_a_quota_are_found() {
    let name = |number: usize| format!("count/{number:05}");
    let hard: Value = (0..MANY).map(|number| (name(number), json!("7"))).collect();
    let used: Value = (0..MANY).map(|number| (name(number), json!("3"))).collect();
    let quota = json!({ "status": { "hard": hard, "used": used } });
    let shown = cells("v1", "ResourceQuota", &quota)[1].clone();
    let shown = shown.as_str().expect("a text");
    assert_eq!(shown.matches(": 3/7").count(), MANY);
    assert!(shown.ends_with("count/19999: 3/7"), "{}", shown.len());
}

#[test]
fn many_readiness_gates_and_init_containers_are_found() {
    let name = |number: usize| format!("example.com/{number}");
    let gate = |number| json!({ "conditionType": name(number) });
    let condition = |number| json!({ "type": name(number), "status": "True" });
    let container = |number| json!({ "name": name(number), "restartPolicy": "Always" });
    let status = |number| json!({ "name": name(number), "started": true, "ready": true });
    let all = |make: &dyn Fn(usize) -> Value| (0..MANY).map(make).collect::<Value>();
    let pod = json!({
        "spec": { "readinessGates": all(&gate), "initContainers": all(&container) },
        "status": { "conditions": all(&condition), "initContainerStatuses": all(&status) },
    });
    let cells = cells("v1", "Pod", &pod);
    assert_eq!(cells[1], format!("{MANY}/{MANY}"));
    assert_eq!(cells[8], format!("{MANY}/{MANY}"));
}

#[test]
fn many_columns_of_a_custom_resource_have_the_same_cells_as_few() {
    let printer = |count: usize| {
        let column = |number: usize| {
            let path = format!(".spec.v{}", number % 3);
            json!({ "name": format!("c{number}"), "type": "string", "jsonPath": path })
        };
        let columns: Vec<_> = (0..count).map(column).collect();
        let version = json!({ "name": "v1", "additionalPrinterColumns": columns });
        let definition = json!({ "spec": { "versions": [version] } });
        Printer::custom(&definition, "v1").expect("the version")
    };
    let object = json!({ "metadata": { "name": "a" }, "spec": { "v0": 1, "v1": [{ "x": "<" }] } });
    let few = printer(3).cells(&object, SystemTime::now());
    assert_eq!(
        few,
        json!(["a", "1", "[{\"x\":\"\\u003c\"}]", null])
            .as_array()
            .cloned()
            .unwrap()
    );
    let many = printer(300).cells(&object, SystemTime::now());
    let (name, cells) = many.split_first().expect("a name");
    assert_eq!(*name, "a");
    assert!(cells.chunks(3).all(|chunk| chunk == &few[1..]));
}
