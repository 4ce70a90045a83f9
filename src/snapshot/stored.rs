//! The stored form of shapes and profiles: JSON in which a struct is the array of its fields, in the order of their
//! declaration, the version tag first. A quarter of the size of the form with names, and it is read by the same derived
//! `Deserialize`, which takes either: a missing or additional field is an error in both.
#![forbid(unsafe_code)]

use serde::ser::{Serialize, SerializeSeq, Serializer};

use super::profile::{Column, ColumnProfile, Common, PROFILE_VERSION, TableProfile};
use super::shape::{
    CaptureTrigger, ColumnShape, ConstraintShape, Expression, IndexShape, MemberShape, Partitioning,
    PolicyShape, TableShape,
};
use crate::error::{Error, Result};

/// A value as it is stored.
pub(super) struct Stored<'a, T: ?Sized>(pub &'a T);

impl<T> Serialize for Stored<'_, Vec<T>>
where
    for<'b> Stored<'b, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Stored))
    }
}

impl<T> Serialize for Stored<'_, Option<T>>
where
    for<'b> Stored<'b, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.0.as_ref().map(Stored).serialize(serializer)
    }
}

/// Names all fields in the order of their declaration; `[field]` is one that holds structs itself. A round trip shows a
/// field that is missing or in another place.
macro_rules! stored {
    ($type:ident: $($field:tt),* $(,)?) => {
        impl Serialize for Stored<'_, $type> {
            fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
                let mut fields = serializer.serialize_seq(None)?;
                let value = self.0;
                $(stored!(@field fields value $field);)*
                fields.end()
            }
        }
    };
    (@field $fields:ident $value:ident [$field:ident]) => { $fields.serialize_element(&Stored(&$value.$field))? };
    (@field $fields:ident $value:ident $field:ident) => { $fields.serialize_element(&$value.$field)? };
}

impl Serialize for Stored<'_, Column> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0 {
            Column::Known(profile) => Stored(profile).serialize(serializer),
            Column::Absent(why) => why.serialize(serializer),
        }
    }
}

impl Serialize for Stored<'_, (i16, Column)> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        (self.0.0, Stored(&self.0.1)).serialize(serializer)
    }
}

stored!(TableShape: version, oid, schema, name, kind, persistence, owner, row_estimate, filenode, [columns], [indexes],
    [constraints], replica_identity, row_security, force_row_security, [policies], [partitioning], is_partition, parents,
    [members], [capture]);
stored!(ColumnShape: attnum, name, type_oid, type_name, type_kind, typmod, dims, collation_oid, collation_name, not_null,
    [expression], missing, identity, generated, stored);
stored!(Expression: oid, text, digest);
stored!(IndexShape: oid, name, attnums, key_count, unique, primary, valid, replica_identity, expressions, partial, definition);
stored!(ConstraintShape: oid, name, kind, attnums, validated, definition);
stored!(PolicyShape: name, digest);
stored!(Partitioning: strategy, attnums, expressions);
stored!(MemberShape: oid, parent, schema, name, kind, partition, persistence, filenode, [capture]);
stored!(CaptureTrigger: name, enabled, function, definition, version);
stored!(TableProfile: version, form, [columns]);
stored!(ColumnProfile: null_fraction, average_width, distinct, correlation, [common], common_fraction, histogram,
    positions);
stored!(Common: value, frequency);

impl TableProfile {
    /// Reads one profile; an unreadable one is an error, never an empty profile.
    pub fn from_json(text: &str) -> Result<TableProfile> {
        let profile: TableProfile = serde_json::from_str(text)
            .map_err(|e| Error::Internal(format!("unreadable value profile: {e}")))?;
        if profile.version != PROFILE_VERSION {
            return Err(Error::Internal(format!(
                "value profile of version {}, expected {PROFILE_VERSION}",
                profile.version
            )));
        }
        Ok(profile)
    }

    /// The stored form.
    pub fn to_json(&self) -> Result<String> {
        written(&Stored(self), "value profile")
    }
}

/// The stored form of any of these.
pub(super) fn written(value: &impl Serialize, what: &str) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::Internal(format!("unwritable {what}: {e}")))
}
