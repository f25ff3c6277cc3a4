//! A bitmap to draw on whose letters come from a font that is compiled in: `plotters` would look for one of the machine's.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use plotters::prelude::*;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{BackendColor, BackendCoord, DrawingErrorKind};
use plotters_bitmap::BitMapBackend;
use plotters_bitmap::bitmap_pixel::RGBPixel;

/// The one size of letters that there is.
const LETTERS: RasterHeight = RasterHeight::Size16;
/// Its height, in pixels.
pub const HEIGHT: i32 = 16;

/// The bitmap, with letters.
pub struct Lettered<'a>(pub BitMapBackend<'a, RGBPixel>);

/// How wide a text is, in pixels.
pub fn width(text: &str) -> u32 {
    u32::try_from(text.chars().count() * get_raster_width(FontWeight::Regular, LETTERS)).unwrap_or(0)
}

impl DrawingBackend for Lettered<'_> {
    type ErrorType = <BitMapBackend<'static, RGBPixel> as DrawingBackend>::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.0.get_size()
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.ensure_prepared()
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.present()
    }

    fn draw_pixel(
        &mut self,
        at: BackendCoord,
        color: BackendColor,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.draw_pixel(at, color)
    }

    fn draw_line<S: plotters_backend::BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.draw_line(from, to, style)
    }

    fn draw_rect<S: plotters_backend::BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.0.draw_rect(from, to, style, fill)
    }

    /// Letter by letter, with no regard to directions: nothing here is written upwards.
    fn draw_text<S: plotters_backend::BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        (x, y): BackendCoord,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        let (wide, _) = self.estimate_text_size(text, style)?;
        let anchor = style.anchor();
        let left = match anchor.h_pos {
            HPos::Left => x,
            HPos::Right => x - wide.cast_signed(),
            HPos::Center => x - wide.cast_signed() / 2,
        };
        let top = match anchor.v_pos {
            VPos::Top => y,
            VPos::Center => y - HEIGHT / 2,
            VPos::Bottom => y - HEIGHT,
        };
        let mut at = left;
        for letter in text.chars() {
            let known = get_raster(letter, FontWeight::Regular, LETTERS);
            let Some(raster) = known.or_else(|| get_raster('?', FontWeight::Regular, LETTERS)) else {
                continue;
            };
            for (row, line) in (0_i32..).zip(raster.rows()) {
                for (column, ink) in (0_i32..).zip(line) {
                    let color = BackendColor { alpha: f64::from(*ink) / 255.0, ..style.color() };
                    self.0.draw_pixel((at + column, top + row), color)?;
                }
            }
            at += i32::try_from(raster.width()).unwrap_or(0);
        }
        Ok(())
    }

    fn estimate_text_size<S: plotters_backend::BackendTextStyle>(
        &self,
        text: &str,
        _style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Self::ErrorType>> {
        Ok((width(text), HEIGHT.cast_unsigned()))
    }
}
