use resvg::{tiny_skia, usvg};
use std::sync::Arc;

/// DejaVu Sans, the Latin and Greek of it: the same glyphs on every machine.
const FONT: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");
/// Pixels of the image per pixel of the drawing: sharp in print at column width.
const SCALE: f32 = 2.0;

/// The same drawing as pixels, with no font but our own.
///
/// # Panics
///
/// If `svg` is not one of [`svg`](super::svg)'s.
pub fn png(svg: &str) -> Vec<u8> {
    let mut options = usvg::Options { font_family: "DejaVu Sans".into(), ..Default::default() };
    Arc::make_mut(&mut options.fontdb).load_font_data(FONT.to_vec());
    let tree = usvg::Tree::from_str(svg, &options).expect("our own drawings parse");
    let size = tree.size().to_int_size().scale_by(SCALE).expect("drawings have a size");
    let mut image = tiny_skia::Pixmap::new(size.width(), size.height()).expect("and it is small");
    let scale = tiny_skia::Transform::from_scale(SCALE, SCALE);
    resvg::render(&tree, scale, &mut image.as_mut());
    image.encode_png().expect("memory takes an image")
}
