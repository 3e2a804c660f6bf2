//! Computes the cells of services, endpoints and endpoint slices.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::codec::table::age::UNKNOWN;
use crate::codec::table::cell::Cell;
use crate::codec::table::value::NONE;
use crate::codec::table::value::UNSET;
use crate::codec::table::value::age_of;
use crate::codec::table::value::joined;
use crate::codec::table::value::list;
use crate::codec::table::value::name;
use crate::codec::table::value::number;
use crate::codec::table::value::or;
use crate::codec::table::value::pairs;
use crate::codec::table::value::shortened;
use crate::codec::table::value::text;

pub(super) fn service(service: &Value) -> Vec<Cell> {
    let spec = &service["spec"];
    let ports: Vec<_> = list(&spec["ports"]).iter().map(service_port).collect();
    vec![
        name(service),
        text(&spec["type"]).into(),
        or(text(&spec["clusterIP"]), NONE).into(),
        external_ip(service).into(),
        or(&ports.join(","), NONE).into(),
        age_of(service),
        pairs(&spec["selector"]).into(),
    ]
}

fn service_port(port: &Value) -> String {
    let (number_of, protocol) = (number(&port["port"]), text(&port["protocol"]));
    match number(&port["nodePort"]) {
        0 => format!("{number_of}/{protocol}"),
        node_port => format!("{number_of}:{node_port}/{protocol}"),
    }
}

fn external_ip(service: &Value) -> String {
    let spec = &service["spec"];
    let external = joined(list(&spec["externalIPs"]).iter().map(text));
    match text(&spec["type"]) {
        "ClusterIP" | "NodePort" => or(&external, NONE).to_owned(),
        "ExternalName" => text(&spec["externalName"]).to_owned(),
        "LoadBalancer" => {
            let balancers = load_balancers(service);
            match (balancers.is_empty(), external.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (true, false) => external,
                (false, true) => balancers,
                (false, false) => format!("{balancers},{external}"),
            }
        }
        _ => UNKNOWN.to_owned(),
    }
}

/// The addresses of a service's load balancers, sorted and without duplicates.
fn load_balancers(service: &Value) -> String {
    let points = list(&service["status"]["loadBalancer"]["ingress"]).iter();
    let shown = points.map(|point| or(text(&point["ip"]), text(&point["hostname"])));
    let shown: BTreeSet<_> = shown.filter(|point| !point.is_empty()).collect();
    joined(shown.into_iter())
}

pub(super) fn endpoints(endpoints: &Value) -> Vec<Cell> {
    let subsets = list(&endpoints["subsets"]);
    let shown = match subsets {
        [] => NONE.to_owned(),
        _ => shortened(&subsets.iter().flat_map(subset).collect::<Vec<_>>()),
    };
    vec![name(endpoints), shown.into(), age_of(endpoints)]
}

fn subset(subset: &Value) -> Vec<String> {
    let addresses = || list(&subset["addresses"]).iter().map(|at| text(&at["ip"]));
    let ports = list(&subset["ports"]);
    if ports.is_empty() {
        return addresses().map(str::to_owned).collect();
    }
    let at_port = |port: i64| addresses().map(move |ip| host_and_port(ip, port));
    let ports = ports.iter().map(|port| number(&port["port"]));
    ports.flat_map(at_port).collect()
}

fn host_and_port(ip: &str, port: i64) -> String {
    if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    }
}

pub(super) fn endpoint_slice(slice: &Value) -> Vec<Cell> {
    let ports = list(&slice["ports"]).iter().map(|port| {
        let number = port["port"].as_i64().map(|number| number.to_string());
        number.unwrap_or_else(|| text(&port["name"]).to_owned())
    });
    let addresses = list(&slice["endpoints"])
        .iter()
        .flat_map(|endpoint| list(&endpoint["addresses"]));
    let addresses: Vec<_> = addresses.map(|ip| text(ip).to_owned()).collect();
    vec![
        name(slice),
        text(&slice["addressType"]).into(),
        or(&shortened(&ports.collect::<Vec<_>>()), UNSET).into(),
        or(&shortened(&addresses), UNSET).into(),
        age_of(slice),
    ]
}

pub(super) fn ingress(ingress: &Value) -> Vec<Cell> {
    let spec = &ingress["spec"];
    let ports = match list(&spec["tls"]) {
        [] => "80",
        _ => "80, 443",
    };
    vec![
        name(ingress),
        spec["ingressClassName"].as_str().unwrap_or(NONE).into(),
        hosts(list(&spec["rules"])).into(),
        load_balancers(ingress).into(),
        ports.into(),
        age_of(ingress),
    ]
}

/// The first three hosts of an ingress, and the number of its rules after the third one if there is
/// any rule after these hosts.
fn hosts(rules: &[Value]) -> String {
    const SHOWN: usize = 3;
    let hosts = rules.iter().enumerate();
    let hosts = hosts.map(|(position, rule)| (position, text(&rule["host"])));
    let shown: Vec<_> = hosts
        .filter(|(_, host)| !host.is_empty())
        .take(SHOWN)
        .collect();
    let last = shown.get(SHOWN - 1).map(|(position, _)| *position);
    let hosts = joined(shown.iter().map(|(_, host)| *host));
    match last {
        Some(last) if last + 1 < rules.len() => {
            format!("{hosts} + {} more...", rules.len() - SHOWN)
        }
        _ => or(&hosts, "*").to_owned(),
    }
}

pub(super) fn service_cidr(cidr: &Value) -> Vec<Cell> {
    let cidrs = joined(list(&cidr["spec"]["cidrs"]).iter().map(text));
    vec![name(cidr), cidrs.into(), age_of(cidr)]
}

pub(super) fn ip_address(address: &Value) -> Vec<Cell> {
    let parent = &address["spec"]["parentRef"];
    let shown = match parent {
        Value::Object(_) => {
            let part = |key: &str| text(&parent[key]);
            let resource = match part("group") {
                "" => part("resource").to_lowercase(),
                group => format!("{}.{group}", part("resource")).to_lowercase(),
            };
            let namespace = match part("namespace") {
                "" => String::new(),
                namespace => format!("/{namespace}"),
            };
            format!("{resource}{namespace}/{}", part("name"))
        }
        _ => NONE.to_owned(),
    };
    vec![name(address), shown.into(), age_of(address)]
}

pub(super) fn ingress_class(class: &Value) -> Vec<Cell> {
    let annotations = &class["metadata"]["annotations"];
    let is_default = &annotations["ingressclass.kubernetes.io/is-default-class"];
    match is_default == "true" {
        true => {
            let name = format!("{} (default)", text(&class["metadata"]["name"]));
            ingress_class_with(class, name.into())
        }
        false => ingress_class_until_35(class),
    }
}

pub(super) fn ingress_class_until_35(class: &Value) -> Vec<Cell> {
    ingress_class_with(class, name(class))
}

fn ingress_class_with(class: &Value, name: Cell) -> Vec<Cell> {
    let spec = &class["spec"];
    let parameters = match &spec["parameters"] {
        Value::Object(_) => {
            let parameters = &spec["parameters"];
            let group = parameters["apiGroup"].as_str();
            let group = group.map(|group| format!(".{group}")).unwrap_or_default();
            let (kind, name) = (text(&parameters["kind"]), text(&parameters["name"]));
            format!("{kind}{group}/{name}")
        }
        _ => NONE.to_owned(),
    };
    vec![
        name,
        text(&spec["controller"]).into(),
        parameters.into(),
        age_of(class),
    ]
}
