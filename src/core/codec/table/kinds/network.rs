//! Computes cells of services, endpoints, ingresses and IP addresses.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::codec::table::cells::age::UNKNOWN;
use crate::codec::table::cells::cell::Cell;
use crate::codec::table::cells::value::{
    NONE, SHORTENED, joined, list, number, or, shortened, text, with_more,
};
use crate::codec::table::part::Part;

pub(super) fn service_ports(ports: Part<'_>, otherwise: &str) -> Cell {
    or(joined(ports.items().map(service_port)), otherwise).into()
}

fn service_port(port: Part<'_>) -> String {
    let (number_of, protocol) = (number(port.at("port")), text(port.at("protocol")));
    match number(port.at("nodePort")) {
        0 => format!("{number_of}/{protocol}"),
        node_port => format!("{number_of}:{node_port}/{protocol}"),
    }
}

pub(super) fn external_ip(service: Part<'_>) -> String {
    let spec = service.at("spec");
    let external = joined(spec.at("externalIPs").items().map(text));
    match &*text(spec.at("type")) {
        "ClusterIP" | "NodePort" => or(external, NONE).into_owned(),
        "ExternalName" => text(spec.at("externalName")).into_owned(),
        "LoadBalancer" => {
            let status = service.at("status").at("loadBalancer");
            let balancers = balancers(status.at("ingress"));
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

/// Returns the addresses of load balancers, sorted and without duplicates.
pub(super) fn balancers(points: Part<'_>) -> String {
    let points = points.items();
    let shown = points.map(|point| or(text(point.at("ip")), text(point.at("hostname"))));
    let shown: BTreeSet<_> = shown.filter(|point| !point.is_empty()).collect();
    joined(shown)
}

pub(super) fn endpoints(subsets: Part<'_>, otherwise: &str) -> Cell {
    let subsets = list(subsets);
    if subsets.is_empty() {
        return otherwise.into();
    }
    let count = subsets.iter().map(|subset| addresses_of(*subset)).sum();
    shortened(subsets.iter().flat_map(|part| subset(*part)), count).into()
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

pub(super) fn slice_ports(ports: Part<'_>, otherwise: &str) -> Cell {
    let shown = ports.items().map(|port| {
        let number = port.at("port").as_i64().map(|number| number.to_string());
        number.unwrap_or_else(|| text(port.at("name")).into_owned())
    });
    or(shortened(shown, ports.items().count()), otherwise).into()
}

pub(super) fn slice_addresses(endpoints: Part<'_>, otherwise: &str) -> Cell {
    let addresses = || {
        let endpoints = endpoints.items();
        endpoints.flat_map(|endpoint| endpoint.at("addresses").items())
    };
    let shown = addresses().map(|ip| text(ip).into_owned());
    or(shortened(shown, addresses().count()), otherwise).into()
}

pub(super) fn ingress_ports(tls: Part<'_>) -> &'static str {
    match tls.items().next() {
        None => "80",
        Some(_) => "80, 443",
    }
}

/// Shows the first three hosts of an ingress, and the number of its rules after the third one if
/// there is any rule after these hosts.
pub(super) fn hosts(rules: Part<'_>, otherwise: &str) -> Cell {
    const SHOWN: usize = 3;
    let rules = list(rules);
    let hosts = rules.iter().enumerate();
    let hosts = hosts.map(|(position, rule)| (position, text(rule.at("host"))));
    let shown: Vec<_> = hosts
        .filter(|(_, host)| !host.is_empty())
        .take(SHOWN)
        .collect();
    let last = shown.get(SHOWN - 1).map(|(position, _)| *position);
    let hosts = joined(shown.iter().map(|(_, host)| host));
    match last {
        Some(last) if last + 1 < rules.len() => with_more(hosts, rules.len(), SHOWN).into(),
        _ => or(hosts, otherwise).into(),
    }
}

/// Shows the object that an IP address belongs to.
pub(super) fn parent(parent: Part<'_>, otherwise: &str) -> Cell {
    if !parent.is_object() {
        return otherwise.into();
    }
    let part = |key: &str| text(parent.at(key));
    let resource = match &*part("group") {
        "" => part("resource").to_lowercase(),
        group => format!("{}.{group}", part("resource")).to_lowercase(),
    };
    let namespace = match &*part("namespace") {
        "" => String::new(),
        namespace => format!("/{namespace}"),
    };
    format!("{resource}{namespace}/{}", part("name")).into()
}

/// Returns the name of an IngressClass, with a mark if it is the default.
pub(super) fn class_name(metadata: Part<'_>) -> String {
    let [name, annotations] = metadata.all(["name", "annotations"]);
    let is_default = annotations.at("ingressclass.kubernetes.io/is-default-class") == "true";
    let mark = if is_default { " (default)" } else { "" };
    format!("{}{mark}", text(name))
}

/// Shows the object with the parameters of an IngressClass.
pub(super) fn parameters(parameters: Part<'_>, otherwise: &str) -> Cell {
    if !parameters.is_object() {
        return otherwise.into();
    }
    let [kind, group, name] = parameters.all(["kind", "apiGroup", "name"]);
    let group = group.as_str().map(|group| format!(".{group}"));
    let (kind, group, name) = (text(kind), group.unwrap_or_default(), text(name));
    format!("{kind}{group}/{name}").into()
}
