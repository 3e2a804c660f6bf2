//! Computes the cells of services, endpoints and endpoint slices.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::codec::table::cells::age::UNKNOWN;
use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{
    NONE, SHORTENED, UNSET, age_of, joined, list, name, number, or, pairs, shortened, text,
};
use crate::codec::table::part::Part;

pub(super) fn service(service: Part<'_>) -> Vec<Cell> {
    let spec = service.at("spec");
    let ports: Vec<_> = spec.at("ports").items().map(service_port).collect();
    vec![
        name(service),
        text(spec.at("type")).into(),
        or(text(spec.at("clusterIP")), NONE).into(),
        external_ip(service).into(),
        or(ports.join(","), NONE).into(),
        age_of(service),
        pairs(spec.at("selector")).into(),
    ]
}

fn service_port(port: Part<'_>) -> String {
    let (number_of, protocol) = (number(port.at("port")), text(port.at("protocol")));
    match number(port.at("nodePort")) {
        0 => format!("{number_of}/{protocol}"),
        node_port => format!("{number_of}:{node_port}/{protocol}"),
    }
}

fn external_ip(service: Part<'_>) -> String {
    let spec = service.at("spec");
    let external = joined(spec.at("externalIPs").items().map(text));
    match &*text(spec.at("type")) {
        "ClusterIP" | "NodePort" => or(external, NONE).into_owned(),
        "ExternalName" => text(spec.at("externalName")).into_owned(),
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

/// Returns the addresses of a service's load balancers, sorted and without duplicates.
fn load_balancers(service: Part<'_>) -> String {
    let points = service
        .at("status")
        .at("loadBalancer")
        .at("ingress")
        .items();
    let shown = points.map(|point| or(text(point.at("ip")), text(point.at("hostname"))));
    let shown: BTreeSet<_> = shown.filter(|point| !point.is_empty()).collect();
    joined(shown)
}

pub(super) fn endpoints(endpoints: Part<'_>) -> Vec<Cell> {
    let subsets = list(endpoints.at("subsets"));
    let count = subsets.iter().map(|subset| addresses_of(*subset)).sum();
    let shown = subsets.iter().flat_map(|part| subset(*part));
    let shown = if subsets.is_empty() {
        NONE.to_owned()
    } else {
        shortened(shown, count)
    };
    vec![name(endpoints), shown.into(), age_of(endpoints)]
}

/// Returns the number of a subset's addresses with each of its ports.
fn addresses_of(subset: Part<'_>) -> usize {
    let [addresses, ports] = subset.all(["addresses", "ports"]);
    addresses.items().count() * ports.items().count().max(1)
}

/// Returns the first of a subset's addresses with each of its ports. There may be millions.
fn subset(subset: Part<'_>) -> Vec<String> {
    let [addresses, ports] = subset.all(["addresses", "ports"]);
    let addresses = || addresses.items().map(|address| text(address.at("ip")));
    let mut ports = ports.items().map(|port| number(port.at("port"))).peekable();
    if ports.peek().is_none() {
        return addresses().map(Cow::into_owned).take(SHORTENED).collect();
    }
    let at_port = |port: i64| addresses().map(move |ip| host_and_port(&ip, port));
    ports.flat_map(at_port).take(SHORTENED).collect()
}

fn host_and_port(ip: &str, port: i64) -> String {
    if ip.contains(':') {
        format!("[{ip}]:{port}")
    } else {
        format!("{ip}:{port}")
    }
}

pub(super) fn endpoint_slice(slice: Part<'_>) -> Vec<Cell> {
    let ports = slice.at("ports");
    let shown_ports = ports.items().map(|port| {
        let number = port.at("port").as_i64().map(|number| number.to_string());
        number.unwrap_or_else(|| text(port.at("name")).into_owned())
    });
    let addresses = || {
        let endpoints = slice.at("endpoints").items();
        endpoints.flat_map(|endpoint| endpoint.at("addresses").items())
    };
    let shown_addresses = addresses().map(|ip| text(ip).into_owned());
    vec![
        name(slice),
        text(slice.at("addressType")).into(),
        or(shortened(shown_ports, ports.items().count()), UNSET).into(),
        or(shortened(shown_addresses, addresses().count()), UNSET).into(),
        age_of(slice),
    ]
}

pub(super) fn ingress(ingress: Part<'_>) -> Vec<Cell> {
    let spec = ingress.at("spec");
    let ports = if list(spec.at("tls")).is_empty() {
        "80"
    } else {
        "80, 443"
    };
    vec![
        name(ingress),
        spec.at("ingressClassName")
            .as_str()
            .unwrap_or(NONE.into())
            .into(),
        hosts(&list(spec.at("rules"))).into(),
        load_balancers(ingress).into(),
        ports.into(),
        age_of(ingress),
    ]
}

/// Returns the first three hosts of an ingress, and the number of its rules after the third one if
/// there is any rule after these hosts.
fn hosts(rules: &[Part<'_>]) -> String {
    const SHOWN: usize = 3;
    let hosts = rules.iter().enumerate();
    let hosts = hosts.map(|(position, rule)| (position, text(rule.at("host"))));
    let shown: Vec<_> = hosts
        .filter(|(_, host)| !host.is_empty())
        .take(SHOWN)
        .collect();
    let last = shown.get(SHOWN - 1).map(|(position, _)| *position);
    let hosts = joined(shown.iter().map(|(_, host)| host));
    match last {
        Some(last) if last + 1 < rules.len() => {
            format!("{hosts} + {} more...", rules.len() - SHOWN)
        }
        _ => or(hosts, "*").into_owned(),
    }
}

pub(super) fn service_cidr(cidr: Part<'_>) -> Vec<Cell> {
    let cidrs = joined(cidr.at("spec").at("cidrs").items().map(text));
    vec![name(cidr), cidrs.into(), age_of(cidr)]
}

pub(super) fn ip_address(address: Part<'_>) -> Vec<Cell> {
    let parent = address.at("spec").at("parentRef");
    let shown = if parent.is_object() {
        let part = |key: &str| text(parent.at(key));
        let resource = match &*part("group") {
            "" => part("resource").to_lowercase(),
            group => format!("{}.{group}", part("resource")).to_lowercase(),
        };
        let namespace = match &*part("namespace") {
            "" => String::new(),
            namespace => format!("/{namespace}"),
        };
        format!("{resource}{namespace}/{}", part("name"))
    } else {
        NONE.to_owned()
    };
    vec![name(address), shown.into(), age_of(address)]
}

pub(super) fn ingress_class(class: Part<'_>) -> Vec<Cell> {
    let annotations = class.at("metadata").at("annotations");
    let is_default = annotations.at("ingressclass.kubernetes.io/is-default-class");
    if is_default == "true" {
        let name = format!("{} (default)", text(class.at("metadata").at("name")));
        ingress_class_with(class, name.into())
    } else {
        ingress_class_until_35(class)
    }
}

pub(super) fn ingress_class_until_35(class: Part<'_>) -> Vec<Cell> {
    ingress_class_with(class, name(class))
}

fn ingress_class_with(class: Part<'_>, name: Cell) -> Vec<Cell> {
    let spec = class.at("spec");
    let parameters = if spec.at("parameters").is_object() {
        let parameters = spec.at("parameters");
        let group = parameters.at("apiGroup").as_str();
        let group = group.map(|group| format!(".{group}")).unwrap_or_default();
        let (kind, name) = (text(parameters.at("kind")), text(parameters.at("name")));
        format!("{kind}{group}/{name}")
    } else {
        NONE.to_owned()
    };
    vec![
        name,
        text(spec.at("controller")).into(),
        parameters.into(),
        age_of(class),
    ]
}
