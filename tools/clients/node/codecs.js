// Codecs for kafkajs, which only has gzip. The packages need neither a compiler nor another download: snappy in JavaScript,
// lz4 as a prebuilt module (its frames have independent blocks, as Kafka requires), zstd as WebAssembly.
"use strict";

const { CompressionTypes, CompressionCodecs } = require("kafkajs");
const snappy = require("kafkajs-snappy");
const lz4 = require("lz4-napi");
const { ZstdCodec } = require("zstd-codec");

const codecTypes = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

const lz4Codec = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
});

// Streaming, because frames of other clients may not contain their decompressed size.
const zstdCodec = (zstd) => () => {
  const streaming = new zstd.Streaming();
  return {
    compress: async (encoder) => Buffer.from(streaming.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(streaming.decompress(buffer)),
  };
};

async function installCodecs() {
  const zstd = await new Promise((resolve) => ZstdCodec.run(resolve));
  CompressionCodecs[CompressionTypes.Snappy] = snappy;
  CompressionCodecs[CompressionTypes.LZ4] = lz4Codec;
  CompressionCodecs[CompressionTypes.ZSTD] = zstdCodec(zstd);
}

module.exports = { codecTypes, installCodecs };
