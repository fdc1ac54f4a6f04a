use resvg::{tiny_skia, usvg};
use std::sync::Arc;

/// The Latin and Greek part of DejaVu Sans: the same glyphs on every machine.
const FONT: &[u8] = include_bytes!("../../assets/DejaVuSans-subset.ttf");
/// Pixels of the image per pixel of the drawing: sharp in print at column width.
const SCALE: f32 = 2.0;

/// The same drawing as pixels, with no other font than the embedded one.
///
/// # Panics
///
/// If `svg` was not made by [`svg`](super::svg()).
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
