import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Reads `DER in hex, rules in base64` a line; answers with the name, and what Kafka's rules make of it. */
public final class KafkaPrincipalNames {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ");
            String rules = new String(Base64.getDecoder().decode(parts[1]), StandardCharsets.UTF_8);
            String name = new X500Principal(HexFormat.of().parseHex(parts[0])).getName();
            String user;
            try {
                user = "+" + SslPrincipalMapper.fromRules(rules).getName(name);
            } catch (java.io.IOException none) {
                user = "-";
            }
            System.out.println(encode(name) + " " + encode(user));
        }
    }

    private static String encode(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8)) + "=";
    }
}
