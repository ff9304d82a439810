"""`python docs/architectures/pictures` draws every picture of these pages anew, beside itself."""

from __future__ import annotations

from pathlib import Path

import on_graphs
import on_images
import on_sequences

PICTURES = {
    draw.__name__: draw
    for draw in (
        on_sequences.attention,
        on_sequences.gpt,
        on_sequences.rnn,
        on_sequences.norms,
        on_sequences.model,
        on_images.vit,
        on_images.masked_autoencoder,
        on_images.convnet,
        on_images.convolution_as_attention,
        on_images.resnet,
        on_images.unet,
        on_images.autoencoder,
        on_graphs.gcn,
        on_graphs.gat,
        on_graphs.mpnn,
        on_graphs.graph_transformer,
    )
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (Path(__file__).parent / f"{name}.svg").write_text(str(draw()), encoding="utf-8")
