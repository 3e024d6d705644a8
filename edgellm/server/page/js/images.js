// Images to attach: shrunk to what a model can use, as data URIs.

const LARGEST = 2048;                                // pixels on the longer side
const MOST_BYTES = 50e6;

/** A JPEG or PNG data URI of an image file. Raises Error for a file that is none. */
export async function imageUri(file) {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is larger than ${MOST_BYTES / 1e6} MB.`);
  let bitmap;
  try { bitmap = await createImageBitmap(file); } catch { throw new Error(`${file.name} is not an image that this browser can read.`); }
  const scale = Math.min(1, LARGEST / Math.max(bitmap.width, bitmap.height));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return file.type === "image/png" ? canvas.toDataURL("image/png") : canvas.toDataURL("image/jpeg", 0.92);
}
