//! The registry of types and kinds.

use std::any::{Any, TypeId, type_name};
use std::collections::{BTreeMap, HashMap};

use kube::Resource;
use kubefan_core::api::GroupVersionKind;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Decoded, Error};

/// The types of a program by their kinds. A kind has one type; a type may be of several kinds.
///
/// ```
/// # fn example() -> Result<(), kubefan::scheme::Error> {
/// # use kube::core::DynamicObject;
/// use kubefan::api::GroupVersionKind;
/// use kubefan::scheme::Scheme;
///
/// let mut scheme = Scheme::new();
/// scheme.register_as::<DynamicObject>(GroupVersionKind::new("ex.io", "v1", "Visitor"))?;
/// let json = br#"{"apiVersion":"ex.io/v1","kind":"Visitor","metadata":{"name":"first"}}"#;
/// let decoded = scheme.decode(json)?;
/// let visitor = decoded.get::<DynamicObject>().expect("the registered type");
/// assert_eq!(visitor.metadata.name.as_deref(), Some("first"));
/// # Ok(())
/// # }
/// # example().expect("it is decoded");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Scheme {
    types: BTreeMap<GroupVersionKind, Registered>,
    kinds: HashMap<TypeId, Vec<GroupVersionKind>>,
}

#[derive(Clone, Copy, Debug)]
struct Registered {
    id: TypeId,
    name: &'static str,
    decode: fn(&[u8]) -> serde_json::Result<Box<dyn Any + Send + Sync>>,
}

/// The members of an object that identify its kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    api_version: String,
    kind: String,
}

// === impl Scheme ===

impl Scheme {
    /// Creates a scheme without types.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the type `K` for its own kind. It may be registered more than once.
    ///
    /// # Errors
    /// [`Error::Registered`] if another type is registered for this kind.
    pub fn register<K>(&mut self) -> Result<(), Error>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let gvk = GroupVersionKind::new(K::group(&()), K::version(&()), K::kind(&()));
        self.register_as::<K>(gvk)
    }

    /// Registers the type `K` for `gvk`. This is for types that have no kind themselves, such as
    /// `kube::core::DynamicObject`, and for a type that several versions share.
    ///
    /// # Errors
    /// [`Error::Registered`] if another type is registered for this kind.
    pub fn register_as<K>(&mut self, gvk: GroupVersionKind) -> Result<(), Error>
    where
        K: DeserializeOwned + Send + Sync + 'static,
    {
        let new = Registered {
            id: TypeId::of::<K>(),
            name: type_name::<K>(),
            decode: |json| Ok(Box::new(serde_json::from_slice::<K>(json)?)),
        };
        match self.types.get(&gvk) {
            Some(registered) if registered.id == new.id => return Ok(()),
            Some(registered) => {
                return Err(Error::Registered {
                    gvk,
                    registered: registered.name,
                    refused: new.name,
                });
            }
            None => {}
        }
        self.kinds.entry(new.id).or_default().push(gvk.clone());
        self.types.insert(gvk, new);
        Ok(())
    }

    /// Returns true if a type is registered for `gvk`.
    pub fn recognizes(&self, gvk: &GroupVersionKind) -> bool {
        self.types.contains_key(gvk)
    }

    /// Returns all kinds with a registered type, sorted.
    pub fn all_kinds(&self) -> impl Iterator<Item = &GroupVersionKind> {
        self.types.keys()
    }

    /// Returns the kinds of the type `K`, in the order of their registration.
    ///
    /// # Errors
    /// [`Error::UnknownType`] if it has none.
    pub fn kinds_of<K: 'static>(&self) -> Result<&[GroupVersionKind], Error> {
        let kinds = self.kinds.get(&TypeId::of::<K>()).map(Vec::as_slice);
        kinds.ok_or(Error::UnknownType(type_name::<K>()))
    }

    /// Returns the kind of the type `K`.
    ///
    /// # Errors
    /// [`Error::UnknownType`] if it has none, and [`Error::SeveralKinds`] if it has several.
    pub fn kind_of<K: 'static>(&self) -> Result<&GroupVersionKind, Error> {
        match self.kinds_of::<K>()? {
            [kind] => Ok(kind),
            kinds => Err(Error::SeveralKinds {
                type_name: type_name::<K>(),
                kinds: kinds.to_vec(),
            }),
        }
    }

    /// Decodes the JSON of an object as the type that is registered for its `apiVersion` and
    /// `kind`.
    ///
    /// # Errors
    /// [`Error::NoKind`] if the JSON has no `apiVersion` and `kind`, and the errors of
    /// [`Scheme::decode_as`].
    pub fn decode(&self, json: &[u8]) -> Result<Decoded, Error> {
        let head: Head = serde_json::from_slice(json).map_err(Error::NoKind)?;
        self.decode_as(GroupVersionKind::of(&head.api_version, head.kind), json)
    }

    /// Decodes the JSON of an object as the type that is registered for `gvk`. This is for objects
    /// without `apiVersion` and `kind`, for example the items of a list.
    ///
    /// # Errors
    /// [`Error::UnknownKind`] if no type is registered for `gvk`, and [`Error::Decode`] if the
    /// object is not of this type.
    pub fn decode_as(&self, gvk: GroupVersionKind, json: &[u8]) -> Result<Decoded, Error> {
        let Some(registered) = self.types.get(&gvk) else {
            return Err(Error::UnknownKind(gvk));
        };
        match (registered.decode)(json) {
            Ok(object) => Ok(Decoded { gvk, object }),
            Err(source) => Err(Error::Decode {
                gvk,
                type_name: registered.name,
                source,
            }),
        }
    }
}
