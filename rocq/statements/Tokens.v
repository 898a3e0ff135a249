(* Sequences of tokens: segments, what may follow a prefix, and the places of a sequence.

   A segment (u, v) is the tokens v where they follow the prefix u.  `walk` lists what may follow a prefix up to the end:
   a sequence ends where nothing may follow, or where it is as long as sequences get.  A place of a sequence is one of its
   tokens, with the segments before it (past), at it (now) and after it (future). *)
From Coq Require Import Reals List Lra Lia.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums.
Import ListNotations.
Open Scope R_scope.

Section Tokens.
Context {A : Type}.
Definition segment := (list A * list A)%type.
Implicit Types (u v w : list A) (x : segment).

(* a product and a sum over the tokens of a segment *)
Fixpoint product (f : list A -> A -> R) u v : R := match v with [] => 1 | a :: v => f u a * product f (u ++ [a]) v end.
Fixpoint sum (f : list A -> A -> R) u v : R := match v with [] => 0 | a :: v => f u a + sum f (u ++ [a]) v end.
Lemma product_app f u v w : product f u (v ++ w) = product f u v * product f (u ++ v) w.
Proof.
  revert u; induction v as [|a v IH]; intros u; cbn [product app]; [rewrite app_nil_r; ring|].
  rewrite IH, <- app_assoc. cbn [app]. ring.
Qed.
Lemma sum_app f u v w : sum f u (v ++ w) = sum f u v + sum f (u ++ v) w.
Proof.
  revert u; induction v as [|a v IH]; intros u; cbn [sum app]; [rewrite app_nil_r; ring|].
  rewrite IH, <- app_assoc. cbn [app]. ring.
Qed.
Lemma product_pos f u v : (forall u a, 0 < f u a) -> 0 < product f u v.
Proof.
  intros H. revert u; induction v as [|a v IH]; intros u; cbn [product]; [lra|]. apply Rmult_lt_0_compat; auto.
Qed.

(* ---------- places ---------- *)
Record place := Place { past_ : segment; now_ : segment; future_ : segment }.
Fixpoint places_after u v w : list place :=   (* of v ++ w, those in w *)
  match w with
  | [] => []
  | a :: w => Place (u, v) (u ++ v, [a]) (u ++ (v ++ [a]), w) :: places_after u (v ++ [a]) w end.
Definition places x : list place := places_after (fst x) [] (snd x).
(* what a segment is worth is the sum over its parts *)
Definition additive (f : segment -> R) : Prop := forall u v w, f (u, v ++ w) = f (u, v) + f (u ++ v, w).
Lemma additive_nil f u : additive f -> f (u, []) = 0.
Proof. intros H. pose proof (H u [] []) as E. cbn [app] in E. rewrite app_nil_r in E. lra. Qed.
Lemma parts_after f u v w c : additive f -> In c (places_after u v w) -> f (u, v ++ w) = f (past_ c) + f (now_ c) + f (future_ c).
Proof.
  intros H. revert v; induction w as [|a w IH]; intros v I; cbn [places_after] in I; [easy|].
  replace (v ++ a :: w) with ((v ++ [a]) ++ w) by (rewrite <- app_assoc; reflexivity).
  destruct I as [<-|I]; [|now apply IH]. cbn [past_ now_ future_]. now rewrite !H.
Qed.
Theorem parts_of_a_sum f x c : additive f -> In c (places x) -> f x = f (past_ c) + f (now_ c) + f (future_ c).
Proof. destruct x as [u v]. intros H I. exact (parts_after f u [] v c H I). Qed.
Lemma sum_after f u v w : additive f -> Sum (places_after u v w) (fun c => f (now_ c)) = f (u ++ v, w).
Proof.
  intros H. revert v; induction w as [|a w IH]; intros v; cbn [places_after Sum now_]; [now rewrite additive_nil|].
  rewrite IH. pose proof (H (u ++ v) [a] w) as E. cbn [app] in E. now rewrite E, <- app_assoc.
Qed.
Theorem sum_over_places f x : additive f -> Sum (places x) (fun c => f (now_ c)) = f x.
Proof. destruct x as [u v]. intros H. unfold places. cbn [fst snd]. rewrite (sum_after f u [] v H). now rewrite app_nil_r. Qed.
Lemma exchange_after f g u v w : additive f -> additive g ->
  Sum (places_after u v w) (fun c => f (now_ c) * g (future_ c)) =
  Sum (places_after u v w) (fun c => (f (past_ c) - f (u, v)) * g (now_ c)).
Proof.
  intros F G. revert v; induction w as [|a w IH]; intros v; cbn [places_after Sum past_ now_ future_]; [reflexivity|].
  rewrite IH, (F u v [a]). rewrite (Sum_ext (places_after u (v ++ [a]) w) (fun c => (f (past_ c) - f (u, v)) * g (now_ c))
    (fun c => (f (past_ c) - (f (u, v) + f (u ++ v, [a]))) * g (now_ c) + f (u ++ v, [a]) * g (now_ c))) by (intros; ring).
  rewrite Sum_plus, Sum_scal, (sum_after g u (v ++ [a]) w G). ring.
Qed.
Theorem exchange f g x : additive f -> additive g ->
  Sum (places x) (fun c => f (now_ c) * g (future_ c)) = Sum (places x) (fun c => f (past_ c) * g (now_ c)).
Proof.
  destruct x as [u v]. intros F G. unfold places. cbn [fst snd]. rewrite (exchange_after f g u [] v F G).
  apply Sum_ext; intros c _. rewrite (additive_nil f u F). ring.
Qed.

(* ---------- what may follow ---------- *)
Variable next : list A -> list A.
Fixpoint walk (n : nat) u : list (list A) :=
  match n, next u with
  | O, _ | _, [] => [[]]
  | S n, l => flat_map (fun a => map (cons a) (walk n (u ++ [a]))) l end.
Lemma walk_end n u (F : list A -> R) : next u = [] -> Sum (walk n u) F = F [].
Proof. intros E. destruct n; cbn [walk]; rewrite ?E; cbn [Sum]; ring. Qed.
Lemma walk_step n u (F : list A -> R) : next u <> [] ->
  Sum (walk (S n) u) F = Sum (next u) (fun a => Sum (walk n (u ++ [a])) (fun v => F (a :: v))).
Proof.
  intros N. cbn [walk]. destruct (next u) as [|b l]; [easy|]. rewrite Sum_flat_map. apply Sum_ext; intros a _. apply Sum_map.
Qed.
Lemma walk_goes_on n u v : next u <> [] -> In v (walk (S n) u) -> v <> [].
Proof.
  intros N. cbn [walk]. destruct (next u) as [|b l]; [easy|]. intros I. apply in_flat_map in I as [a [_ I]].
  apply in_map_iff in I as [w [<- _]]. discriminate.
Qed.
Lemma nil_or_not (l : list A) : l = [] \/ l <> []. Proof. destruct l; [now left|now right]. Qed.

Section Mass.
Variable f : list A -> A -> R.
Hypothesis mass : forall u, next u <> [] -> Sum (next u) (f u) = 1.
Lemma walk_mass n u : Sum (walk n u) (product f u) = 1.
Proof.
  revert u; induction n as [|n IH]; intros u; [cbn; ring|]. destruct (nil_or_not (next u)) as [E|E].
  - now rewrite walk_end.
  - rewrite walk_step by exact E. rewrite <- (mass u E). apply Sum_ext; intros a _. cbn [product].
    rewrite Sum_scal, IH. ring.
Qed.
(* means over sequences of sums over places are equal where they are equal at each prefix, over what may follow *)
Definition at_prefix n u (H : place -> R) : R :=
  Sum (next u) (fun a => f u a * Sum (walk n (u ++ [a])) (fun v => product f (u ++ [a]) v * H (Place ([], u) (u, [a]) (u ++ [a], v)))).
Theorem by_prefixes N (H K : place -> R) :   (* sequences of at most N tokens: n may follow u *)
  (forall n u, (length u + S n)%nat = N -> next u <> [] -> at_prefix n u H = at_prefix n u K) ->
  forall n u, (length u + n)%nat = N -> Sum (walk n u) (fun v => product f u v * Sum (places_after [] u v) H) =
    Sum (walk n u) (fun v => product f u v * Sum (places_after [] u v) K).
Proof.
  intros P n. induction n as [|n IH]; intros u L; [cbn; ring|]. destruct (nil_or_not (next u)) as [E|E].
  - now rewrite !walk_end by exact E.
  - rewrite !walk_step by exact E.
    assert (D : forall G : place -> R, Sum (next u) (fun a => Sum (walk n (u ++ [a])) (fun v => product f u (a :: v) * Sum (places_after [] u (a :: v)) G)) =
      at_prefix n u G + Sum (next u) (fun a => f u a * Sum (walk n (u ++ [a])) (fun v => product f (u ++ [a]) v * Sum (places_after [] (u ++ [a]) v) G))).
    { intros G. unfold at_prefix. rewrite <- Sum_plus. apply Sum_ext; intros a _. rewrite <- !Sum_scal, <- Sum_plus.
      apply Sum_ext; intros v _. cbn [places_after Sum product app]. ring. }
    rewrite !D, (P n u L E). f_equal. apply Sum_ext; intros a _. rewrite IH; [reflexivity|]. rewrite app_length. cbn [length]. lia.
Qed.
End Mass.
End Tokens.
