//! Event: one change in the log, together with its encoded frames. All streams share it.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::api::{EventType, Object, ResourceVersion, Selection, WireFormat};
use crate::cache::log::charge::Charge;
use crate::mutation;
use crate::mutation::Mutation;

/// One change of one object.
#[derive(Debug)]
pub struct Event {
    /// The type of the change, regardless of selections.
    pub event_type: EventType,
    /// The object after the change. For a deletion, the object that the upstream sent with it, or
    /// the stored object if a relist implied the deletion.
    pub object: Arc<Object>,
    /// The stored object before the change; `None` if there was none.
    pub previous: Option<Arc<Object>>,
    /// The version that watches get for this event. In a block, it differs from
    /// the object's version.
    pub resource_version: ResourceVersion,
    /// True for events in the block of a relist, which have the version applied before the relist.
    in_block: bool,
    part: ChangePart,
    frames: Frames,
    /// Frames with the metadata only, for JSON and then protobuf; allocated on first use.
    metadata_frames: OnceLock<Box<[Frames; 2]>>,
    /// The bytes of this event and of its frames, which the log counts while it has the event.
    pub(super) charge: Arc<Charge>,
}

/// The bytes of a frame, and the charge of its event, which may be gone already.
struct ChargedFrame {
    frame: Bytes,
    _charge: Arc<Charge>,
}

/// One frame per verdict, at the place of the [`EventType`] in its definition.
type Frames = [OnceLock<Bytes>; 3];

/// Which part of a change an event represents. A relist splits off departures into the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangePart {
    Whole,
    /// Only the departure: the object leaves the selections that it no longer matches.
    Departure,
    /// The change without the departure, which is a separate event in the block.
    ExceptDeparture,
}

/// Approximate bytes of an event and its log entry, without objects and frames.
const OVERHEAD: usize = 240;
/// Bytes of a frame besides its text.
const FRAME_OVERHEAD: usize = 64;

// === impl Event ===

impl Event {
    /// Creates the event of a change. `upstream_frame` is the upstream's own frame and its event
    /// type, if the change was received from the upstream watch.
    pub(in crate::cache) fn new(
        event_type: EventType,
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        upstream_frame: Option<(EventType, Bytes)>,
    ) -> Self {
        // The object's body is a slice of the frame and is already counted in `object.size()`.
        let frame = upstream_frame.as_ref();
        let frame_bytes = frame.map_or(0, |(_, frame)| frame.len() + FRAME_OVERHEAD);
        let bytes = frame_bytes.saturating_sub(object.body.len())
            + previous.as_deref().map_or(0, Object::size);
        let event = Self::without_frames(event_type, object, previous, bytes);
        if let Some((frame_type, frame)) = upstream_frame {
            event.frames[frame_type as usize]
                .get_or_init(|| ChargedFrame::bytes(frame, &event.charge));
        }
        event
    }

    /// Creates the event of a change that takes `more` bytes than its object.
    fn without_frames(
        event_type: EventType,
        object: Arc<Object>,
        previous: Option<Arc<Object>>,
        more: usize,
    ) -> Self {
        Self {
            event_type,
            resource_version: object.resource_version,
            charge: Arc::new(Charge::new(OVERHEAD + object.size() + more)),
            object,
            previous,
            in_block: false,
            part: ChangePart::Whole,
            frames: Frames::default(),
            metadata_frames: OnceLock::new(),
        }
    }

    /// Creates the DELETED event for a deletion of `object` that the upstream watch missed. The
    /// event belongs to the block and has resource version `at`.
    pub(in crate::cache) fn implied_deletion(object: Arc<Object>, at: ResourceVersion) -> Self {
        let previous = Some(object.clone());
        Self {
            resource_version: at,
            in_block: true,
            ..Self::without_frames(EventType::Deleted, object, previous, 0)
        }
    }

    /// Creates the event of the block, at version `at`, that removes the object from the selections
    /// that only `previous` matches. Returns `None` if both objects match equal selections.
    pub(in crate::cache) fn implied_departure(
        object: &Arc<Object>,
        previous: &Arc<Object>,
        at: ResourceVersion,
    ) -> Option<Self> {
        if object.has_same_selectable_values(previous) {
            return None;
        }
        Some(Self {
            event_type: EventType::Modified,
            object: object.clone(),
            part: ChangePart::Departure,
            ..Self::implied_deletion(previous.clone(), at)
        })
    }

    /// Removes the DELETED verdicts that [`Event::implied_departure`] already produces.
    pub(in crate::cache) fn without_departure(mut self) -> Self {
        self.part = ChangePart::ExceptDeparture;
        self
    }

    /// Returns true for an event from [`Event::implied_departure`]. The log has a second
    /// event for the change.
    fn is_departure(&self) -> bool {
        self.part == ChangePart::Departure
    }

    /// Returns the bytes of the object that this change replaces or deletes in the store.
    pub(in crate::cache) fn replaced_bytes(&self) -> u64 {
        let previous = self.previous.as_ref().filter(|_| !self.is_departure());
        previous.map_or(0, |previous| previous.size() as u64)
    }

    /// Returns true for a deletion that a relist implied, because no watch event showed the
    /// deletion. [`Event::object`] is then the last state that the cache received, which may not be
    /// the object's final state.
    pub fn is_final_state_unknown(&self) -> bool {
        self.in_block && self.event_type == EventType::Deleted
    }

    /// Returns true if a change of `object` that has the version of this event is this change.
    pub(in crate::cache) fn repeats(&self, event_type: EventType, object: &Object) -> bool {
        let is_deletion = |event_type| event_type == EventType::Deleted;
        self.object.key == object.key
            && self.object.uid() == object.uid()
            && is_deletion(self.event_type) == is_deletion(event_type)
    }

    /// Returns the event type that this change has for a client that sees only the objects of
    /// `selection`, or `None` if that client does not see the change. Guarded by
    /// `model_needs_the_previous_object`.
    pub fn verdict(&self, selection: &Selection) -> Option<EventType> {
        match (self.effect(selection), self.part) {
            (Some(EventType::Deleted), ChangePart::ExceptDeparture) => None,
            (Some(EventType::Deleted), _) => Some(EventType::Deleted),
            (_, ChangePart::Departure) => None,
            (effect, _) => effect,
        }
    }

    /// Does what [`Event::verdict`] does, for a reader that does not track resource versions. If a
    /// relist finds that an object has left a selection, the log has two events; this reader gets
    /// the deletion from the second one.
    pub fn verdict_without_departures(&self, selection: &Selection) -> Option<EventType> {
        let effect = self.effect(selection);
        effect.filter(|_| !self.is_departure())
    }

    /// Returns how the change affects `selection`: whether the object enters it, leaves
    /// it or changes in it. Returns `None` if the selection has the object neither before
    /// nor after the change.
    fn effect(&self, selection: &Selection) -> Option<EventType> {
        let is_selected = |object: &Arc<Object>| selection.matches(object);
        let before = match &self.previous {
            Some(_) if mutation::is_active(Mutation::NewObjectOnly) => is_selected(&self.object),
            previous => previous.as_ref().is_some_and(is_selected),
        };
        let after = self.event_type != EventType::Deleted && is_selected(&self.object);
        match (before, after) {
            (true, false) => Some(EventType::Deleted),
            (false, true) => Some(EventType::Added),
            (true, true) => Some(EventType::Modified),
            (false, false) => None,
        }
    }

    /// Returns the object to send for this event with `verdict`: the object before the change if it
    /// only leaves a selection. Send the object with [`Event::resource_version`], even if its
    /// version differs.
    pub fn object_for(&self, verdict: EventType) -> &Arc<Object> {
        let leaves = verdict == EventType::Deleted && self.event_type != EventType::Deleted;
        match &self.previous {
            Some(previous) if leaves => previous,
            _ => &self.object,
        }
    }

    /// Returns the frame of this event with `verdict`, encoded at most once.
    ///
    /// If the upstream sent the event with this type, the upstream's frame is returned. Otherwise
    /// the `encode` of the first caller must encode [`Event::object_for`] with
    /// [`Event::resource_version`]. Concurrent callers with an equal verdict wait for that call.
    /// Guarded by `i6_an_event_is_encoded_at_most_once_per_verdict`.
    pub fn frame(&self, verdict: EventType, encode: impl FnOnce() -> Bytes) -> Bytes {
        self.encoded_once(&self.frames[verdict as usize], encode)
    }

    /// Returns the metadata-only frame of this event in `format`, encoded at most once per verdict.
    pub fn metadata_frame(
        &self,
        format: WireFormat,
        verdict: EventType,
        encode: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let frames = self.metadata_frames.get_or_init(|| {
            self.charge.add(size_of::<[Frames; 2]>());
            Box::default()
        });
        let frame = &frames[format as usize][verdict as usize];
        self.encoded_once(frame, encode)
    }

    fn encoded_once(&self, frame: &OnceLock<Bytes>, encode: impl FnOnce() -> Bytes) -> Bytes {
        let encode_and_charge = || {
            let frame = encode();
            self.charge.add(frame.len() + FRAME_OVERHEAD);
            ChargedFrame::bytes(frame, &self.charge)
        };
        frame.get_or_init(encode_and_charge).clone()
    }

    /// Returns the frame that the object's body is a slice of, if there is one.
    pub(in crate::cache) fn backing_frame(&self) -> Option<&Bytes> {
        let body = self.object.body.as_ptr();
        let mut frames = self.frames.iter().filter_map(OnceLock::get);
        frames.find(|frame| frame.as_ptr_range().contains(&body))
    }

    /// Returns true if a client that starts at version `start` already has this event.
    ///
    /// A client that starts at the version of a block may have been disconnected in the middle of
    /// the block, so it gets the complete block again. Guarded by
    /// `model_needs_the_block_repeated_at_its_version`.
    pub(in crate::cache) fn is_known_at(&self, start: ResourceVersion) -> bool {
        self.resource_version < start
            || (self.resource_version == start
                && (!self.in_block || mutation::is_active(Mutation::BlockNotRepeated)))
    }
}

// === impl ChargedFrame ===

impl ChargedFrame {
    /// Wraps `frame` in bytes that hold a reference to `charge`.
    fn bytes(frame: Bytes, charge: &Arc<Charge>) -> Bytes {
        Bytes::from_owner(Self {
            frame,
            _charge: Arc::clone(charge),
        })
    }
}

impl AsRef<[u8]> for ChargedFrame {
    fn as_ref(&self) -> &[u8] {
        &self.frame
    }
}
