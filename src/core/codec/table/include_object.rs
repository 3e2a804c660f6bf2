//! IncludeObject: what a row of a Table has besides its cells.

/// The object that a row contains besides its cells: the query parameter `includeObject`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IncludeObject {
    /// Rows have no object.
    None,
    /// Rows have the object's metadata, as a PartialObjectMetadata.
    #[default]
    Metadata,
    /// Rows have the complete object.
    Object,
}

impl IncludeObject {
    /// Parses the query parameter `includeObject`; an empty or absent value means `Metadata`.
    ///
    /// # Errors
    ///
    /// For any other value, the message of the API server's 400 answer.
    pub fn parse(value: Option<&str>) -> Result<Self, String> {
        match value.unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: \
                 must be 'Metadata', 'Object', 'None', or empty"
            )),
        }
    }
}
