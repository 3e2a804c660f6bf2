//! Chooses the representation for an Accept header by the API server's rules.

use super::representation::{MetaVersion, Representation, View};
use crate::api::WireFormat;
use crate::codec::table::IncludeObject;

/// A read verb. The representation of its answer is negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadVerb {
    /// GET of one object.
    Get,
    /// GET of a collection.
    List,
    /// WATCH of a collection.
    Watch,
}

/// The result of content negotiation: the representation that a request is answered in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Negotiated {
    /// Complete objects. The flag is true for indented JSON (`;pretty=1`), and
    /// never set for a watch.
    Plain(WireFormat, bool),
    /// `PartialObjectMetadata`, or `PartialObjectMetadataList` for a LIST. The flag is true for
    /// indented JSON (`;pretty=1`), and never set for a watch.
    PartialObjectMetadata(WireFormat, MetaVersion, bool),
    /// A Table in JSON. The flag is true for indented JSON (`;pretty=1`), and
    /// never set for a watch.
    Table(MetaVersion, bool),
    /// A Table in YAML.
    YamlTable,
    /// Complete objects in YAML.
    Yaml,
    /// A representation that only the API server can produce, such as CBOR or metadata in YAML.
    Other,
    /// `PartialObjectMetadata` for a LIST, or `PartialObjectMetadataList` for another verb.
    OtherKind,
    /// No clause matches a format on offer: 406 Not Acceptable.
    NotAcceptable,
}

impl Negotiated {
    /// Returns the representation, or `None` if a cache cannot produce it. The rows of a Table have
    /// the default object; the query parameter `includeObject` may ask for another one.
    pub fn representation(self) -> Option<Representation> {
        let (format, view, indent) = match self {
            Self::Plain(format, indent) => (format, View::Whole, indent),
            Self::PartialObjectMetadata(format, version, indent) => {
                (format, View::Metadata(version), indent)
            }
            Self::Table(version, indent) => {
                let view = View::Table(version, IncludeObject::Metadata);
                (WireFormat::Json, view, indent)
            }
            Self::YamlTable | Self::Yaml | Self::Other | Self::OtherKind | Self::NotAcceptable => {
                return None;
            }
        };
        Some(Representation {
            format,
            view,
            indent,
        })
    }
}

/// The media types that the API server offers, in the order that a wildcard clause tries them.
const OFFERS: [&str; 4] = [JSON, YAML, PROTOBUF, CBOR];
const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// Offered by API servers with a feature gate; matched only by its name, not by a wildcard.
const CBOR: &str = "application/cbor";

/// One clause of an Accept header.
struct Clause<'a> {
    main_type: &'a str,
    subtype: &'a str,
    quality: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

/// The kind, group and version that an answer is converted to: the parameters `as`, `g` and `v` of
/// a clause.
type Target<'a> = [&'a str; 3];

/// Chooses the representation of an answer. `accept` is the request's first Accept header.
pub fn negotiate(accept: Option<&str>, verb: ReadVerb, is_custom_resource: bool) -> Negotiated {
    let header = accept.unwrap_or_default();
    if header.is_empty() {
        return Negotiated::Plain(WireFormat::Json, false);
    }
    if !is_routed(header) {
        return Negotiated::NotAcceptable;
    }
    first(&clauses(header), verb, is_custom_resource)
}

/// Chooses the representation by the first clause that fits an offer.
fn first(clauses: &[Clause<'_>], verb: ReadVerb, is_custom_resource: bool) -> Negotiated {
    let found = clauses.iter().find_map(|clause| {
        let mut offers = OFFERS.into_iter().filter(|offer| clause.covers(offer));
        offers.find_map(|offer| clause.negotiate(offer, verb, is_custom_resource))
    });
    found.unwrap_or(Negotiated::NotAcceptable)
}

/// Chooses the representation of an answer in JSON. Returns `None` if the request does not accept
/// JSON, or gives it the quality 0. A client that prefers another format must still be able to read
/// this answer (RFC 9110 §12.5.1).
pub fn negotiate_json(
    accept: Option<&str>,
    verb: ReadVerb,
    is_custom_resource: bool,
) -> Option<Negotiated> {
    let mut clauses = clauses(accept.unwrap_or_default());
    clauses.retain(|clause| clause.covers(JSON));
    // The most specific clause has priority: the others only repeat its permission.
    let decisive = clauses.iter().max_by_key(|clause| clause.specificity())?;
    if decisive.quality <= 0.0 {
        return None;
    }
    let mut accepted = clauses.iter().filter(|clause| clause.quality > 0.0);
    accepted.find_map(|clause| clause.negotiate(JSON, verb, is_custom_resource))
}

/// Chooses the representation of a Status that is an error answer.
///
/// A Status is never converted, so clauses with a target (`as`, `g`, `v`) or with `sv` are ignored.
pub(crate) fn negotiate_status(accept: Option<&str>) -> Negotiated {
    let header = accept.unwrap_or_default();
    if header.is_empty() {
        return Negotiated::Plain(WireFormat::Json, false);
    }
    let mut clauses = clauses(header);
    clauses.retain(|clause| clause.target().is_none() && clause.parameter("sv").is_none());
    first(&clauses, ReadVerb::Get, false)
}

/// Returns true if the API server's router accepts the header. The router answers 406 before
/// negotiation; it compares complete media types and supports no wildcard except `*/*`.
fn is_routed(header: &str) -> bool {
    header.split(',').any(|clause| {
        let media_type = clause.split(';').next().unwrap_or_default().trim();
        media_type == "*/*" || OFFERS.contains(&media_type)
    })
}

/// Returns the header's clauses, sorted by quality and then by how specific the media type is.
fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<_> = header.split(',').filter_map(Clause::parse).collect();
    clauses.sort_by(|a, b| {
        let by_quality = b.quality.total_cmp(&a.quality);
        by_quality.then_with(|| b.specificity().cmp(&a.specificity()))
    });
    clauses
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.trim().split(';');
        let media_type = parts.next()?;
        let (main_type, subtype) = match media_type.split_once('/') {
            Some((_, subtype)) if subtype.is_empty() || subtype.contains('/') => return None,
            Some((main_type, subtype)) => (main_type.trim(), subtype.trim()),
            None if media_type.trim() == "*" => ("*", "*"),
            None => return None,
        };
        let mut clause = Self {
            main_type,
            subtype,
            quality: 1.0,
            parameters: Vec::new(),
        };
        for part in parts {
            match part.split_once('=') {
                Some((_, value)) if value.is_empty() || value.contains('=') => {}
                Some((name, value)) if name.trim() == "q" => {
                    clause.quality = value.parse().unwrap_or(0.0);
                }
                Some((name, value)) => clause.parameters.push((name.trim(), value.trim())),
                None => {}
            }
        }
        Some(clause)
    }

    fn specificity(&self) -> (bool, bool) {
        (self.main_type != "*", self.subtype != "*")
    }

    fn covers(&self, offer: &str) -> bool {
        match (self.main_type, self.subtype) {
            ("*" | "application", "*") => offer != CBOR,
            media_type => offer.split_once('/') == Some(media_type),
        }
    }

    /// Returns the value of the last parameter called `name`.
    fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut found = self.parameters.iter().rev();
        found
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }

    fn target(&self) -> Option<Target<'a>> {
        let parts = ["as", "g", "v"].map(|name| self.parameter(name));
        (parts != [None; 3]).then(|| parts.map(Option::unwrap_or_default))
    }

    /// Returns the result of this clause for `offer`, or `None` if the clause's
    /// parameters exclude the offer.
    fn negotiate(
        &self,
        offer: &str,
        verb: ReadVerb,
        is_custom_resource: bool,
    ) -> Option<Negotiated> {
        let streams = offer != YAML;
        let stream_fits = self
            .parameter("stream")
            .is_none_or(|stream| stream == "watch" && streams);
        let version_fits = self.parameter("sv").is_none_or(|version| version == "v1");
        if !stream_fits || !version_fits {
            return None;
        }
        let pretty = self.parameter("pretty") == Some("1") && verb != ReadVerb::Watch;
        let answer = match self.target() {
            None if is_custom_resource && offer == PROTOBUF => return None,
            None => plain(offer, pretty),
            Some(target) => converted(target, offer, verb, pretty)?,
        };
        // The API server first chooses the format, and only then rejects one that cannot stream. It
        // does not try the next clause.
        if verb == ReadVerb::Watch && !streams {
            Some(Negotiated::NotAcceptable)
        } else {
            Some(answer)
        }
    }
}

fn plain(offer: &str, pretty: bool) -> Negotiated {
    match offer {
        JSON => Negotiated::Plain(WireFormat::Json, pretty),
        PROTOBUF => Negotiated::Plain(WireFormat::Protobuf, false),
        YAML => Negotiated::Yaml,
        _ => Negotiated::Other,
    }
}

fn converted(
    [kind, group, version]: Target<'_>,
    offer: &str,
    verb: ReadVerb,
    pretty: bool,
) -> Option<Negotiated> {
    let version = match (group, version) {
        ("meta.k8s.io", "v1") => MetaVersion::V1,
        ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
        _ => return None,
    };
    let fits_verb = match (kind, offer) {
        ("Table", PROTOBUF) => return None,
        ("Table", JSON) => return Some(Negotiated::Table(version, pretty)),
        ("Table", YAML) => return Some(Negotiated::YamlTable),
        ("PartialObjectMetadata", _) => verb != ReadVerb::List,
        ("PartialObjectMetadataList", _) => verb == ReadVerb::List,
        _ => return None,
    };
    let partial = Negotiated::PartialObjectMetadata;
    Some(match offer {
        _ if !fits_verb => Negotiated::OtherKind,
        JSON => partial(WireFormat::Json, version, pretty),
        PROTOBUF => partial(WireFormat::Protobuf, version, false),
        _ => Negotiated::Other,
    })
}
