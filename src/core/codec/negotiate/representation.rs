//! The representation of objects in an answer.

use crate::api::WireFormat;
use crate::codec::table::IncludeObject;

/// The format and content of the objects in an answer. Negotiation produces valid combinations
/// only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Representation {
    /// The wire format of the answer. Metadata in protobuf can be made from a cache in JSON.
    pub format: WireFormat,
    /// The part of each object that the answer contains.
    pub view: View,
    /// True for indented JSON, which people read; never true for a watch.
    pub indent: bool,
}

/// The part of an object that an answer contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// The complete object.
    Whole,
    /// The object's metadata, as a PartialObjectMetadata of this version.
    Metadata(MetaVersion),
    /// A row of a Table of this version, with a part of the object beside the cells.
    Table(MetaVersion, IncludeObject),
}

/// The requested version of the API group `meta.k8s.io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MetaVersion {
    /// The current version, `meta.k8s.io/v1`.
    #[default]
    V1,
    /// The deprecated version, `meta.k8s.io/v1beta1`.
    V1Beta1,
}

impl View {
    /// Returns true for Tables.
    pub fn is_table(self) -> bool {
        matches!(self, Self::Table(..))
    }

    /// Returns true for Tables without objects beside the cells.
    pub fn is_cells_only(self) -> bool {
        matches!(self, Self::Table(_, IncludeObject::None))
    }
}

impl Representation {
    /// Creates the representation of complete objects in `format`, on one line.
    pub fn plain(format: WireFormat) -> Self {
        Self {
            format,
            view: View::Whole,
            indent: false,
        }
    }
}

impl MetaVersion {
    /// Returns the group and version as text, as in `apiVersion`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "meta.k8s.io/v1",
            Self::V1Beta1 => "meta.k8s.io/v1beta1",
        }
    }
}
