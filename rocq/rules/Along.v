(* Sums along a sequence, as data: over its steps, in parts, and exchanged. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Instances Stepwise Densities.
Import ListNotations.
Open Scope R_scope.

Section Soundness.
Variable S : setting.
Variable par : nat -> bool -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Notation env := (env S par). Notation dside := (dside S par). Notation datom := (datom S par).
Notation env_ok := (env_ok S par par_ok).

(* what a segment is worth *)
Definition worth (b : base) (x : outcome S) : R := each S b (ln (q0 S x)) x.
Lemma worth_adds b : sums_up b = true -> additive (worth b).
Proof.
  intros H u v w. pose proof (log_density_adds S Mq u v w) as Q. pose proof (log_density_adds S Mp u v w) as P.
  pose proof (log_density_adds S Mmu u v w) as M. cbn [density] in Q, P, M.
  assert (O : ln (old S (u, v ++ w)) = ln (old S (u, v)) + ln (old S (u ++ v, w))).
  { unfold old. cbn [fst snd]. rewrite product_app. apply ln_mult; apply product_pos, next_old_pos. }
  unfold worth, q0.
  destruct b; try discriminate; cbn [each]; [lra|lra|exact Q| |apply score_adds|apply sum_app|lra].
  cbn [snd]. rewrite app_length. apply plus_INR.
Qed.
Lemma one_token (y : outcome S) c : In c (places y) -> List.length (snd (now_ c)) = 1%nat /\ snd y <> [].
Proof.
  destruct y as [u v]. unfold places. cbn [fst snd]. intros I. split; [|now intros ->]. revert I. generalize (@nil (token S)) as k.
  induction v as [|a v IH]; intros k I; cbn [places_after] in I; [destruct I|]. destruct I as [<-|I]; [reflexivity|apply (IH _ I)].
Qed.
Lemma length_one (y : outcome S) : snd y <> [] -> length S [y] = INR (List.length (snd y)).
Proof.
  intros N. unfold length. cbn [flat_map]. rewrite app_nil_r. f_equal. destruct (snd y); [easy|]. cbn [List.length]. lia.
Qed.
Lemma env_worth w z b sg : sums_up b = true -> z <> Whole \/ b <> Length -> env w (Sample z b sg) = Sum (w z) (worth b).
Proof. intros H N. unfold Statements.env, worth. destruct z, b, sg; try discriminate; try reflexivity; destruct N; easy. Qed.
Lemma env_whole w y b sg : sums_up b = true -> w Whole = [y] -> snd y <> [] -> env w (Sample Whole b sg) = worth b y.
Proof.
  intros H W N. assert (L : b = Length \/ b <> Length) by (destruct b; auto; right; discriminate). destruct L as [-> |L].
  - unfold Statements.env. cbn [val]. rewrite W. now apply length_one.
  - rewrite env_worth by auto. rewrite W. cbn [Sum]. ring.
Qed.
Lemma at_step_ok w z x b sg : sums_up b = true -> z <> Whole -> w z = [x] -> (z = Now -> List.length (snd x) = 1%nat) ->
  den (env w) (at_step z b sg) = worth b x.
Proof.
  intros H N W L. assert (V : env w (Sample z b sg) = worth b x) by (rewrite env_worth by auto; rewrite W; cbn [Sum]; ring).
  destruct z, b; cbn [at_step]; try (now rewrite var_ok by apply env_ok). rewrite one_ok by apply env_ok.
  unfold worth. cbn [each]. now rewrite L.
Qed.

(* ---------- in parts ---------- *)
Lemma reached_parts m i w : stepwise i = true -> reached S m i w ->
  exists y c, In c (places y) /\ w Whole = [y] /\ w Past = [past_ c] /\ w Now = [now_ c] /\ w Future = [future_ c].
Proof.
  intros T. unfold reached. rewrite T. intros [v [y [c [Po [W [I ->]]]]]]. exists y, c. pose proof (possible_drawn S _ _ _ _ Po) as D.
  assert (Z : forall z, of_steps z = true -> v z = []).
  { intros z O. apply length_zero_iff_nil. rewrite (D z). destruct i; try discriminate; cbn [draws];
      rewrite ?count_cons, ?count_repeat; destruct z; try discriminate; reflexivity. }
  unfold at_place, Setting.add. cbn [same_slot scode Nat.eqb]. rewrite W, (Z Past), (Z Now), (Z Future) by reflexivity. auto.
Qed.
Section InParts.
Variables (me : measure) (i : index) (w : world S).
Hypothesis T : stepwise i = true.
Hypothesis Re : reached S me i w.
Lemma put_parts_ok v a : put_parts v = Some a -> den (env w) a = env w v.
Proof.
  destruct (reached_parts me i w T Re) as [y [c [I [W [P [N F]]]]]]. destruct (one_token y c I) as [L E].
  destruct v as [[] b sg| |]; cbn [put_parts]; try discriminate.
  2:{ destruct b; try discriminate. intros H. apply Some_inj in H; subst a. rewrite one_ok by apply env_ok.
    rewrite env_worth by (reflexivity || (left; discriminate)). rewrite N. unfold worth. cbn [Sum each]. rewrite L. cbn. ring. }
  unfold guard. destruct (sums_up b) eqn:B; [|discriminate].
  intros H. apply Some_inj in H; subst a. rewrite !add_ok by apply env_ok.
  rewrite (at_step_ok w Past _ b sg B) by (easy || exact P). rewrite (at_step_ok w Now _ b sg B) by (easy || exact N || auto).
  rewrite (at_step_ok w Future _ b sg B) by (easy || exact F). rewrite (env_whole w y b sg B W E).
  rewrite (parts_of_a_sum (worth b) y c (worth_adds b B) I). ring.
Qed.
End InParts.
Theorem in_parts i m a b : stepwise i = true -> eparts put_parts a = Some b -> datom (Mean i m a) = datom (Mean i m b).
Proof. intros T H. apply mean_at_reached. intros w D. symmetry.
  apply (eparts_ok put_parts (env w) (env_ok w)); [|exact H]. apply (put_parts_ok m i w T D).
Qed.

(* ---------- over the steps, and exchanged ---------- *)
Lemma supported m k y : In y (support S m k) -> snd y <> [].
Proof.
  assert (H : In y (outcomes S) -> snd y <> []).
  { unfold outcomes. intros I. apply in_map_iff in I as [v [<- I]]. exact (walk_goes_on (next S) (more S) [] v (starts S) I). }
  destruct m; try exact H. intros [<-|[]]. apply here_ok.
Qed.
Theorem over_steps m b a : sums_up b = true -> of_whole a = true ->
  datom (Mean Single m (mul (tidy a) (var_ (Sample Whole b false)))) = datom (Mean Steps m (mul (tidy a) (at_step Now b false))).
Proof.
  intros B A. cbn [Statements.datom]. unfold mean at 2. rewrite stepwise_mean by reflexivity.
  unfold mean, mean_at. cbn [draws E spread stepwise]. apply Sum_ext; intros y I. f_equal. apply supported in I.
  rewrite mul_ok, tidy_ok, var_ok by apply env_ok. rewrite (env_whole _ y b false B eq_refl I).
  rewrite <- (sum_over_places (worth b) y (worth_adds b B)), <- Sum_scal. apply Sum_ext; intros c C.
  cbn [others draws tl E]. rewrite mul_ok, tidy_ok by apply env_ok.
  rewrite (at_step_ok _ Now (now_ c) b false B) by (easy || reflexivity || (intros; apply (one_token y c C))). f_equal.
  apply (speaks_within S par (same_slot Whole) a A). intros z Z. apply same_slot_eq in Z. now subst z.
Qed.
Theorem exchanged i m b c a : stepwise i = true -> sums_up b = true -> sums_up c = true -> not_of_steps a = true ->
  datom (Mean i m (mul (tidy a) (mul (at_step Now b false) (at_step Future c false)))) =
  datom (Mean i m (mul (tidy a) (mul (at_step Past b false) (at_step Now c false)))).
Proof.
  intros T B C A. cbn [Statements.datom]. unfold mean. rewrite !stepwise_mean by exact T. apply Sum_ext; intros y _. f_equal.
  set (r := E S m (theta S) 1 (others S i) (fun w => den (env (Setting.add S Whole y w)) a)).
  assert (K : forall e w, den (env (there S e y w)) a = den (env (Setting.add S Whole y w)) a).
  { intros e w. apply (speaks_within S par _ a A). intros z Z. destruct z; try discriminate; reflexivity. }
  transitivity (Sum (places y) (fun e => r * (worth b (now_ e) * worth c (future_ e)))).
  - apply Sum_ext; intros e I. rewrite Rmult_comm. unfold r. rewrite <- E_scal. apply E_drawn. intros w D.
    destruct (parts_of_there S i e y w T D) as [_ [N [F _]]]. rewrite !mul_ok, tidy_ok by apply env_ok. rewrite K.
    rewrite (at_step_ok _ Now _ b false B) by (easy || exact N || (intros; apply (one_token y e I))).
    rewrite (at_step_ok _ Future _ c false C) by (easy || exact F). ring.
  - rewrite Sum_scal, (exchange (worth b) (worth c) y (worth_adds b B) (worth_adds c C)), <- Sum_scal.
    apply Sum_ext; intros e I. rewrite Rmult_comm. unfold r. rewrite <- E_scal. apply E_drawn. intros w D.
    destruct (parts_of_there S i e y w T D) as [P [N _]]. rewrite !mul_ok, tidy_ok by apply env_ok. rewrite K.
    rewrite (at_step_ok _ Past _ b false B) by (easy || exact P).
    rewrite (at_step_ok _ Now _ c false C) by (easy || exact N || (intros; apply (one_token y e I))). ring.
Qed.
End Soundness.
