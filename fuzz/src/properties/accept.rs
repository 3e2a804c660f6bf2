//! Content negotiation: different spellings of an Accept header give the same result.

use kubefan::api::WireFormat;
use kubefan::codec::{Negotiated, ReadVerb, negotiate};

/// Negotiates any text as an Accept header, for every verb and for built-in and custom resources.
pub fn accept(data: &[u8]) {
    let header = String::from_utf8_lossy(data);
    for verb in [ReadVerb::Get, ReadVerb::List, ReadVerb::Watch] {
        for is_custom_resource in [false, true] {
            negotiated(&header, verb, is_custom_resource);
        }
    }
}

fn negotiated(header: &str, verb: ReadVerb, is_custom_resource: bool) {
    let negotiate = |header: &str| negotiate(Some(header), verb, is_custom_resource);
    let answer = negotiate(header);
    match answer {
        Negotiated::Plain(WireFormat::Protobuf, pretty) => {
            assert!(!pretty && !is_custom_resource, "{header:?}");
        }
        Negotiated::Plain(WireFormat::Json, pretty) => {
            assert!(!pretty || verb != ReadVerb::Watch, "{header:?}");
        }
        Negotiated::Yaml => assert_ne!(verb, ReadVerb::Watch, "{header:?}"),
        Negotiated::PartialObjectMetadata(..) => {
            assert!(header.contains("meta.k8s.io"), "{header:?}");
        }
        Negotiated::Table(..) | Negotiated::YamlTable => {
            assert!(header.contains("Table"), "{header:?}")
        }
        Negotiated::Other | Negotiated::OtherKind | Negotiated::NotAcceptable => {}
    }
    if header.is_empty() {
        return;
    }
    // Media types that are not offered, repeated clauses, and blanks do not change the result.
    let repeated = format!("{header},{header}");
    assert_eq!(negotiate(&repeated), answer, "{header:?} twice");
    let spaced = header.split(',').collect::<Vec<_>>().join(" , ");
    assert_eq!(negotiate(&spaced), answer, "{spaced:?}");
    for other in [
        format!("text/html,{header}"),
        format!("{header},text/html;q=0.5"),
    ] {
        assert_eq!(negotiate(&other), answer, "{other:?}");
    }
    // A clause with the lowest quality matters only if no other clause is acceptable.
    let names_its_place = ["inf", "nan"]
        .iter()
        .any(|word| header.to_ascii_lowercase().contains(word));
    if answer != Negotiated::NotAcceptable && !names_its_place {
        let last = format!("{header},application/json;q=-inf");
        assert_eq!(negotiate(&last), answer, "{last:?}");
    }
}
