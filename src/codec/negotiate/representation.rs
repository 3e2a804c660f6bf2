//! Representation: in which form an answer shows objects.

use crate::api::WireFormat;

/// How an answer shows objects; always given with a format that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Representation {
    /// Of the answer. Metadata may come in protobuf from a cache in JSON.
    pub format: WireFormat,
    /// What is shown of each object.
    pub view: View,
    /// True for JSON on many lines, for people; never for a watch.
    pub indent: bool,
}

/// What is shown of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// Everything.
    Whole,
    /// Its metadata, as a PartialObjectMetadata of this version.
    Metadata(MetaVersion),
}

/// The version of `meta.k8s.io` that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// `meta.k8s.io/v1`.
    #[default]
    V1,
    /// `meta.k8s.io/v1beta1`.
    V1Beta1,
}

impl Representation {
    /// Whole objects in `format`, on one line.
    pub fn plain(format: WireFormat) -> Self {
        Self {
            format,
            view: View::Whole,
            indent: false,
        }
    }
}

impl MetaVersion {
    /// Group and version, as in `apiVersion`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}
