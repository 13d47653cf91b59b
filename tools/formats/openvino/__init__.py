"""OpenVINO IR: an XML file with the graph and a bin file with its constants."""
