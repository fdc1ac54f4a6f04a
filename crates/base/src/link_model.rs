//! The impairment model.
