//! Which representation an Accept header asks for, decided as the API server decides it.

use std::cmp::Reverse;

use super::representation::MetaVersion;
use super::representation::Representation;
use super::representation::View;
use crate::api::WireFormat;

/// A verb whose answer is negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadVerb {
    /// GET of one object.
    Get,
    /// GET of a collection.
    List,
    /// WATCH of a collection.
    Watch,
}

/// The representation that a request is answered in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Negotiated {
    /// Whole objects; the flag asks for indented JSON (`;pretty=1`, never for a watch).
    Plain(WireFormat, bool),
    /// `PartialObjectMetadata`, or for a LIST its list; the flag as above.
    PartialObjectMetadata(WireFormat, MetaVersion, bool),
    /// A Table, in whatever format and version.
    Table,
    /// Whole objects in YAML.
    Yaml,
    /// Something that only upstream can answer exactly, such as CBOR or metadata in YAML.
    Other,
    /// 406.
    NotAcceptable,
}

impl Negotiated {
    /// What to answer with, if a cache can; indented if this asks for it.
    pub fn representation(self) -> Option<Representation> {
        let (format, view, indent) = match self {
            Self::Plain(format, indent) => (format, View::Whole, indent),
            Self::PartialObjectMetadata(format, version, indent) => {
                (format, View::Metadata(version), indent)
            }
            Self::Table | Self::Yaml | Self::Other | Self::NotAcceptable => return None,
        };
        Some(Representation {
            format,
            view,
            indent,
        })
    }
}

/// A format that the API server offers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offer {
    Json,
    Yaml,
    Protobuf,
    /// Offered behind a feature gate of upstream's.
    Cbor,
}

/// In the order in which a wildcard tries them.
const OFFERS: [Offer; 4] = [Offer::Json, Offer::Yaml, Offer::Protobuf, Offer::Cbor];

/// One clause of an Accept header.
struct Clause<'a> {
    main_type: &'a str,
    subtype: &'a str,
    quality: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

/// Which object an answer is converted to.
#[derive(Default)]
struct Target<'a> {
    kind: &'a str,
    group: &'a str,
    version: &'a str,
}

/// Decides for the (first) Accept header of a request.
pub fn negotiate(accept: Option<&str>, verb: ReadVerb, is_custom_resource: bool) -> Negotiated {
    let header = accept.unwrap_or_default();
    if header.is_empty() {
        return Negotiated::Plain(WireFormat::Json, false);
    }
    if !is_routed(header) {
        return Negotiated::NotAcceptable;
    }
    clauses(header)
        .iter()
        .find_map(|clause| {
            let mut offers = OFFERS.into_iter().filter(|offer| clause.covers(*offer));
            offers.find_map(|offer| clause.negotiate(offer, verb, is_custom_resource))
        })
        .unwrap_or(Negotiated::NotAcceptable)
}

/// Decides for the Status that refuses a request. It is never converted, so only clauses that ask
/// for no conversion count.
pub(crate) fn negotiate_status(accept: Option<&str>) -> Negotiated {
    let header = accept.unwrap_or_default();
    if header.is_empty() {
        return Negotiated::Plain(WireFormat::Json, false);
    }
    clauses(header)
        .iter()
        .filter(|clause| clause.target().is_none() && clause.parameter("sv").is_none())
        .find_map(|clause| {
            let mut offers = OFFERS.into_iter().filter(|offer| clause.covers(*offer));
            offers.find_map(|offer| clause.negotiate(offer, ReadVerb::Get, false))
        })
        .unwrap_or(Negotiated::NotAcceptable)
}

/// True when the API server's router lets the header through: it compares whole media types,
/// knows no wildcard but `*/*`, and refuses on its own.
fn is_routed(header: &str) -> bool {
    header.split(',').any(|clause| {
        let media_type = clause.split(';').next().unwrap_or_default().trim();
        media_type == "*/*" || OFFERS.iter().any(|offer| offer.media_type() == media_type)
    })
}

/// The header's clauses, best first.
fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<_> = header.split(',').filter_map(Clause::parse).collect();
    clauses.sort_by(|a, b| {
        let rank = |clause: &Clause<'_>| (clause.main_type != "*", clause.subtype != "*");
        let by_quality = b.quality.total_cmp(&a.quality);
        by_quality.then_with(|| Reverse(rank(a)).cmp(&Reverse(rank(b))))
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

    fn covers(&self, offer: Offer) -> bool {
        match (self.main_type, self.subtype) {
            ("*", "*") => offer != Offer::Cbor,
            ("application", "*") => offer != Offer::Cbor,
            (main_type, subtype) => {
                offer.media_type().split_once('/') == Some((main_type, subtype))
            }
        }
    }

    /// The last value of a parameter.
    fn parameter(&self, name: &str) -> Option<&'a str> {
        let mut found = self.parameters.iter().rev();
        found
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }

    fn target(&self) -> Option<Target<'a>> {
        let part = |name| self.parameter(name);
        let parts = (part("as"), part("g"), part("v"));
        (parts != (None, None, None)).then(|| Target {
            kind: parts.0.unwrap_or_default(),
            group: parts.1.unwrap_or_default(),
            version: parts.2.unwrap_or_default(),
        })
    }

    /// What a match with `offer` means; `None` when its parameters rule it out.
    fn negotiate(
        &self,
        offer: Offer,
        verb: ReadVerb,
        is_custom_resource: bool,
    ) -> Option<Negotiated> {
        let streams = offer != Offer::Yaml;
        let stream_fits = self
            .parameter("stream")
            .is_none_or(|stream| stream == "watch" && streams);
        let version_fits = self.parameter("sv").is_none_or(|version| version == "v1");
        if !stream_fits || !version_fits {
            return None;
        }
        let pretty = self.parameter("pretty") == Some("1") && verb != ReadVerb::Watch;
        let answer = match self.target() {
            None if is_custom_resource && offer == Offer::Protobuf => return None,
            None => offer.plain(pretty),
            Some(target) => target.negotiate(offer, verb, pretty)?,
        };
        // A format is settled before it turns out to have no stream form.
        if verb == ReadVerb::Watch && !streams {
            Some(Negotiated::NotAcceptable)
        } else {
            Some(answer)
        }
    }
}

impl Target<'_> {
    fn negotiate(&self, offer: Offer, verb: ReadVerb, pretty: bool) -> Option<Negotiated> {
        let version = match (self.group, self.version) {
            ("meta.k8s.io", "v1") => MetaVersion::V1,
            ("meta.k8s.io", "v1beta1") => MetaVersion::V1Beta1,
            _ => return None,
        };
        let fits_verb = match self.kind {
            "Table" if offer == Offer::Protobuf => return None,
            "Table" if offer != Offer::Cbor => return Some(Negotiated::Table),
            "PartialObjectMetadata" => verb != ReadVerb::List,
            "PartialObjectMetadataList" => verb == ReadVerb::List,
            _ => return None,
        };
        let partial = Negotiated::PartialObjectMetadata;
        Some(match offer {
            Offer::Json if fits_verb => partial(WireFormat::Json, version, pretty),
            Offer::Protobuf if fits_verb => partial(WireFormat::Protobuf, version, false),
            _ => Negotiated::Other,
        })
    }
}

impl Offer {
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
            Self::Cbor => "application/cbor",
        }
    }

    fn plain(self, pretty: bool) -> Negotiated {
        match self {
            Self::Json => Negotiated::Plain(WireFormat::Json, pretty),
            Self::Protobuf => Negotiated::Plain(WireFormat::Protobuf, false),
            Self::Yaml => Negotiated::Yaml,
            Self::Cbor => Negotiated::Other,
        }
    }
}
